// Slot files: what a slot has computed, kept on disk, so that another process or a later day goes on from there. A file
// holds states (tokens, and the keys, values and recurrent state after them): the slot's own, and those from which
// other continuations of its prompt may start. docs/slot-files.md describes every byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/slot_identity.h"
#include "state/sequence.h"

namespace sluice {

constexpr uint32_t kMaxSlotStates = 1024;  // of one file

// A state, and the tokens that it came about by: tokens.size() == snapshot.length().
struct SavedState {
  std::vector<int32_t> tokens;
  state::Snapshot snapshot;
};

// The same, where it belongs to somebody else.
struct StateToSave {
  std::span<const int32_t> tokens;
  const state::Snapshot* snapshot;
};

struct SlotLimits {
  uint32_t context = 0;  // positions of a state, at most
  uint32_t n_vocab = 0;  // tokens are below this
};

// The path of a slot file in `folder`. Throws Error(kUsage) for a name that is not a plain one: empty, longer than 200
// bytes, beginning with a dot, or with a separator of folders or a control character in it.
std::string slot_file_path(const std::string& folder, std::string_view name);

// Writes states of `pool`, the slot's own first, and returns the number of bytes. A page is written once, whoever
// shares it. The file appears under its name when it is complete and on disk; one of that name stays until then. Throws
// Error(kIo) when the disk is full or fails, Error(kLimit) for more than kMaxSlotStates states or 16 Mi tokens.
uint64_t write_slot_file(const std::string& path, const SlotIdentity& identity, const state::PagePool& pool,
                         std::span<const StateToSave> states);

// The states of a file, in pages of `pool` that were free; shared where they were shared. Throws Error, beginning with
// the file's path and naming field, value and limit: kFormat for a file that is damaged, cut short, or of another model
// or cache type; kUnsupported for another version; kLimit when the pool has too few free pages; kIo. The pool is then
// as before.
std::vector<SavedState> read_slot_file(const File& file, const SlotIdentity& identity, const SlotLimits& limits,
                                       state::PagePool& pool);

}  // namespace sluice
