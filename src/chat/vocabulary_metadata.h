// The vocabulary of a GGUF file, out of its metadata.
#pragma once

#include "chat/vocabulary.h"
#include "gguf/metadata.h"

namespace sluice::chat {

// Reads the keys tokenizer.ggml.* that Sluice knows, without comparing them with each other (Tokenizer does). Throws
// Error(kFormat) naming file, key and remedy if a key that is needed is missing or one has the wrong type.
VocabularyData read_vocabulary(const gguf::Metadata& metadata);

}  // namespace sluice::chat
