// Loops that keep one kind of a processor's units busy, once per instruction set: what the limits of a machine are
// measured with. They do what the best kernel could hope for, and nothing useful.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::cli::machine {

// A loop over registers only. `run` returns something that depends on all it computed.
struct RegisterLoop {
  uint64_t (*run)(size_t rounds) = nullptr;  // null: this instruction set has no such loop
  double operations = 0;                     // multiplications and additions in a round
};

struct Units {
  const char* name;      // of the instruction set: "avx2"
  const char* int8_how;  // the instructions that multiply bytes: "vpmaddubsw + vpaddw"
  // Loads `bytes` (a multiple of kReadStep) bytes from memory and combines them, as fast as loads of this set go.
  uint64_t (*read)(const std::byte* data, size_t bytes);
  RegisterLoop int8;  // bytes times bytes, summed in 32 bits
  RegisterLoop f32;   // fused multiply-add
};

constexpr size_t kReadStep = 1024;

// Sums that a loop advances side by side: more than the latency of a multiply-add (4 or 5 cycles) times those begun in
// one (2), and with its operands within 16 registers.
constexpr size_t kChains = 12;

// What this machine runs, best first. The last is portable C++, which has no loops over registers.
std::span<const Units> usable_units();

}  // namespace sluice::cli::machine
