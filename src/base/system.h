// What this machine has to give.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

// Bytes of memory that this process may still take: the system's available memory or, where less, what the limits of
// its control groups leave (version 1 or 2; cached files don't count as taken). 0 when the system doesn't say.
uint64_t available_memory();

// Bytes that should be given back because memory is running out: what is available is less than a small part of all, or
// the system says that programs wait for memory (/proc/pressure). 0 when all is well.
uint64_t memory_shortage();

// The most memory this process has had resident so far, in bytes.
uint64_t peak_resident_bytes();

// Keeps the calling thread, and the threads that it starts from now on, to these CPUs (numbers as in /proc/cpuinfo).
// Throws Error(kUsage) when this process may use none of them.
void restrict_to_cpus(std::span<const int> cpus);

// Seconds since some fixed moment, monotonic.
double now_seconds();

}  // namespace sluice
