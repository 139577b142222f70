// What this machine has to give.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

// Bytes of memory that this process may still take: the system's available memory or, where less, what the control
// group's limit leaves. 0 when the system doesn't say.
uint64_t available_memory();

// The most memory this process has had resident so far, in bytes.
uint64_t peak_resident_bytes();

// Keeps the calling thread, and the threads that it starts from now on, to these CPUs (numbers as in /proc/cpuinfo).
// Throws Error(kUsage) when this process may use none of them.
void restrict_to_cpus(std::span<const int> cpus);

// Seconds since some fixed moment, monotonic.
double now_seconds();

}  // namespace sluice
