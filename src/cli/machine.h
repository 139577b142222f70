// The limits of this machine, measured: what a share of bandwidth is a share of.
#pragma once

namespace sluice::cli {

// Bytes per second that `threads` threads read from memory, in GB/s: the best of a few passes over a buffer that is
// larger than any cache.
double measure_read_gbps(int threads);

}  // namespace sluice::cli
