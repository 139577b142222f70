// The kernels of every instruction set, each defined by its cpu/<name>/kernels.cpp; for the tables that list them.
#pragma once

#include "ops/cpu/kernels.h"

namespace sluice::ops::cpu {

namespace scalar {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avxvnni {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx512vnni {
extern const Kernels kKernels;
}
namespace amx {
extern const Kernels kKernels;
}
#elif defined(__aarch64__)
namespace neon {
extern const Kernels kKernels;
}
#endif

}  // namespace sluice::ops::cpu
