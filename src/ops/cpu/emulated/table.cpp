// The table of kernels (kernels.h) of an x86 processor that has every instruction set: what this one lacks is emulated
// (test_intrinsics.h). A test program that is linked with this file, instead of the library's table, runs its tests for
// all of them.
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/cpu/kernels.h"

namespace sluice::ops::cpu {

namespace scalar {
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

std::span<const Kernels* const> usable_kernels() {
  static const Kernels* const all[] = {&avx512vnni::kKernels, &avx512::kKernels, &avxvnni::kKernels, &scalar::kKernels};
  return all;
}

std::span<const std::string_view> compiled_kernels() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const Kernels* kernels : usable_kernels()) list.emplace_back(kernels->name);
    return list;
  }();
  return names;
}

const Kernels& find_kernels(std::string_view name) {
  for (const Kernels* kernels : usable_kernels())
    if (kernels->name == name) return *kernels;
  fail(ErrorKind::kUsage, "{}: not among the emulated instruction sets or scalar", name);
}

}  // namespace sluice::ops::cpu
