// JSON as a language model writes it, made valid while it comes. For arguments of tool calls, which are passed on piece
// by piece and can't be taken back. Not here: values (chat/jinja).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Appends `text` (UTF-8) as it stands between the quotes of a JSON string (RFC 8259, section 7).
void append_json_escaped(std::string& out, std::string_view text);
std::string json_quoted(std::string_view text);

// Takes one JSON object byte by byte and writes the same as valid JSON, one that jinja::from_json reads:
//   white space outside strings becomes ", " and ": ";
//   control characters in strings are escaped, the backslash of an unknown escape is doubled, halves of surrogate pairs
//   become U+FFFD;
//   words without quotes that are no JSON become strings, but True, False and None what they mean in Python;
//   a comma before a closing bracket is dropped.
// All else that fits nowhere ends it: see broken(). The text is kept in its order; nothing of it is lost but layout.
class JsonMender {
 public:
  static constexpr size_t kMaxDepth = 64;

  // Takes from the front of `text` what belongs to the object, and returns how many bytes that was; fewer than all when
  // the object is complete or broken. Appends what is certain to `out`.
  size_t feed(std::string_view text, std::string& out);
  bool done() const { return expect_ == Expect::kNothing; }
  // The next byte fits nowhere, or brackets are nested too deeply. Only close() helps.
  bool broken() const { return broken_; }
  // The end, wherever it is: what was held back, and all that makes the object complete; a key without value gets null.
  void close(std::string& out);

 private:
  enum class Expect : uint8_t { kObject, kKey, kColon, kMember, kItem, kNext, kNothing };
  enum class Inside : uint8_t { kNone, kString, kWord };

  bool take(char c, std::string& out);
  bool take_structure(char c, std::string& out);
  void take_in_string(char c, std::string& out);
  void take_in_escape(char c, std::string& out);
  void end_code_unit(std::string& out);
  void end_half_pair(std::string& out);
  bool begin_value(char c, std::string& out);
  bool close_bracket(char c, std::string& out);
  void end_word(std::string& out);
  void end_scalar() { expect_ = is_key_ ? Expect::kColon : Expect::kNext; }
  void separate(std::string& out);

  Expect expect_ = Expect::kObject;
  Inside inside_ = Inside::kNone;
  bool broken_ = false;
  bool is_key_ = false;  // the string or word that we are in
  bool comma_ = false;   // seen, not yet written
  std::string closers_;  // innermost last
  std::string word_;
  std::string escape_;  // an escape that isn't complete
  std::string half_;    // an escaped first half of a surrogate pair
};

}  // namespace sluice
