#include "engine/generation.h"

namespace sluice {

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "eos";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStopString:
      return "stop-string";
    case StopReason::kInterrupted:
      return "interrupt";
    case StopReason::kDeadline:
      return "deadline";
    case StopReason::kShutdown:
      return "shutdown";
  }
  return "";
}

const char* name_of(CacheReason reason) {
  switch (reason) {
    case CacheReason::kNothingToReuse:
      return "nothing to reuse";
    case CacheReason::kWhole:
      return "whole";
    case CacheReason::kExtended:
      return "extended";
    case CacheReason::kDiverged:
      return "diverged";
    case CacheReason::kNoSnapshot:
      return "no snapshot";
    case CacheReason::kEvicted:
      return "evicted";
    case CacheReason::kNotWanted:
      return "not wanted";
  }
  return "";
}

}  // namespace sluice
