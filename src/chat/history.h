// What a request's messages need before a template sees them, and the memory of answers that lets an answer that comes
// back as history stand in the prompt as the very tokens that were generated. Not here: rendering (prompter.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/jinja/value.h"

namespace sluice {

// Messages as every template takes them, prepared as by prepare_messages (template.h), and
//   all system and developer messages, wherever they stand, as one system message in front, their texts parted by empty
//     lines: templates refuse them elsewhere, or leave them out silently;
//   messages with the old role "function" as "tool", and "reasoning" as "reasoning_content", as some clients send it.
// Throws Error(kUsage) naming the place: a role that there isn't, content that is neither text nor null nor a list of
// parts, or a part that isn't text. Error(kFormat) as prepare_messages.
jinja::Value fit_messages(const jinja::Value& messages);

// An answer as generated, and what its prompt ended with.
struct RememberedAnswer {
  uint64_t prompt_hash = 0;     // of the prompt's tokens up to and with the opening
  std::string opening;          // the text that opens the answer's turn, such as "<|im_start|>assistant\n<think>\n"
  std::vector<int32_t> tokens;  // behind it, without the token that ended the answer
  bool has_reasoning = false;
};

// Answers given lately, found by what clients send back of them: content and calls (by name and value of the arguments,
// white space around and the calls' ids don't count), and the reasoning if they send it. Bounded in number and bytes;
// forgets what was not asked for longest. Not for several threads at once.
class AnswerMemory {
 public:
  AnswerMemory(size_t max_answers, size_t max_bytes) : max_answers_(max_answers), max_bytes_(max_bytes) {}

  // To be told of answers whose text is all that the tokens say: not of those that a stop string ended. An answer that
  // is larger than the whole memory is not kept.
  void remember(RememberedAnswer answer, const ParsedAnswer& parsed);

  // The answers that an assistant's message, as from fit_messages, may be, the one that was used last first. Pointers
  // hold until the next remember().
  std::vector<const RememberedAnswer*> find(const jinja::Value& message) const;
  // It serves again, and is forgotten last.
  void use(const RememberedAnswer& answer);

  size_t size() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    uint64_t hash;
    std::string key, reasoning;
    RememberedAnswer answer;
    size_t bytes() const;
  };

  std::list<Entry> entries_;  // the one that was used last first
  size_t max_answers_, max_bytes_, bytes_ = 0;
};

// A hash of tokens.
uint64_t hash_tokens(std::span<const int32_t> tokens);

}  // namespace sluice
