#include "ops/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/cpu/units.h"

namespace sluice::ops::cpu {

namespace {

struct Entry {
  const Kernels* kernels;
  bool usable;
};

#if defined(__x86_64__)

// CPUID bits that the compilers' own test does not know: F16C by that name in Clang 14, AVX-VNNI in either.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx_vnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;  // eax: the last subleaf
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
}
// AMX tiles of bytes: CPUID's bits, and Linux's permission for the process, which tile registers need since they make
// its threads' saved state 8 KB larger (Documentation/arch/x86/xstate.rst, since Linux 5.16).
bool has_amx_int8() {
  constexpr unsigned kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxTile) == 0 || (edx & kAmxInt8) == 0)
    return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#endif

// Best first. The compiler's test also asks the operating system (XGETBV) whether it saves the wide registers.
std::vector<Entry> detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = has_f16c() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx512vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  return {{&amx::kKernels, avx512vnni && has_amx_int8()},
          {&avx512vnni::kKernels, avx512vnni},
          {&avx512::kKernels, avx512},
          {&avxvnni::kKernels, avx2 && has_avx_vnni()},
          {&avx2::kKernels, avx2},
          {&scalar::kKernels, true}};
#elif defined(__aarch64__)
  return {{&neon::kKernels, (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0}, {&scalar::kKernels, true}};
#else
  return {{&scalar::kKernels, true}};
#endif
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = detect();
  return all;
}

std::string list_names(bool usable_only) {
  std::string names;
  for (const Entry& entry : entries())
    if (entry.usable || !usable_only) names += (names.empty() ? "" : ", ") + std::string(entry.kernels->name);
  return names;
}

}  // namespace

std::span<const Kernels* const> usable_kernels() {
  static const std::vector<const Kernels*> usable = [] {
    std::vector<const Kernels*> list;
    for (const Entry& entry : entries())
      if (entry.usable) list.push_back(entry.kernels);
    return list;
  }();
  return usable;
}

std::span<const std::string_view> compiled_kernels() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const Entry& entry : entries()) list.push_back(entry.kernels->name);
    return list;
  }();
  return names;
}

const Kernels& find_kernels(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (entry.kernels->name != name) continue;
    if (!entry.usable)
      fail(ErrorKind::kUsage, "--isa {}: this processor or operating system lacks it; usable here: {}", name,
           list_names(true));
    return *entry.kernels;
  }
  fail(ErrorKind::kUsage, "--isa {}: unknown; this program has {}", name, list_names(false));
}

}  // namespace sluice::ops::cpu
