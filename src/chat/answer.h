// What a model writes, parted into reasoning, content and tool calls while it comes. Pure: no request, no response, no
// ids of calls. Not here: what tools are (tool_set.h), how reasoning is marked (reasoning.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/json_mender.h"
#include "chat/reasoning.h"
#include "chat/tool_set.h"

namespace sluice {

// How a model's template has calls written.
enum class CallFormat : uint8_t {
  kXml,  // Qwen3-Coder, Qwen3.5, 3.6: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
  kJson,  // Hermes, Qwen2.5, Qwen3: <tool_call>{"name": NAME, "arguments": {...}}</tool_call>
};
// By what the template tells the model: kXml if it speaks of "<function=".
CallFormat call_format(std::string_view template_source);

// What an answer begins with that must be a call, of the function `name` or, if that is empty, of any: for tool_choice.
// To be put behind the prompt, and fed to the AnswerParser before what the model writes.
// `inside_reasoning`: the prompt has opened a think block, which is closed first.
std::string call_opening(CallFormat format, std::string_view name, bool inside_reasoning);

struct AnswerDelta {
  enum class Kind : uint8_t { kReasoning, kContent, kCall, kArguments };
  Kind kind;
  std::string text;  // for kCall, which begins a call: the function's name; for kArguments: a piece of a JSON text
  size_t call = 0;   // for those two: the call's number, from 0
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// A whole answer: the sum of its deltas.
struct ParsedAnswer {
  std::string reasoning, content;
  std::vector<ParsedCall> calls;

  void add(const AnswerDelta& delta);
};

// Takes a model's output piece by piece, cut anywhere, and gives deltas in the order of the text. Their sums depend on
// no cut, and all are valid UTF-8 (what isn't becomes U+FFFD). Never throws on account of what the model writes.
//
// Reasoning is parted as by ReasoningSplitter. Without tools, all else is content. With tools:
//   A call is one of CallFormat's, whichever the template has, with the name of a tool that there is; its wrapper may
//   be missing if the name's line ends with it. Its text is held back until that is certain. In a think block that
//   never ends, it is looked for at the end of the output: there the reasoning ends with the first line that begins a
//   call. Arguments of kXml are typed by the tool's schema (argument_as_json). Those that must be strings come in
//   pieces, others when they are complete. Arguments of kJson come in pieces, mended where they are no JSON
//   (JsonMender), unless they stand before the name. Whatever happens, they are a JSON object when the call is over.
//   The end of a value is </parameter> with the next mark (or the end) behind it, so that values may hold that word;
//   where that is missing, it is a line that begins the next known parameter, or the end of the call.
//   Of a parameter that is given twice, the first counts.
//   The end of output completes an open call.
// No text gets lost: what belongs to no call (unknown functions, second values, text between marks) is content as it
// was written. Only marks and the white space around calls are left out.
class AnswerParser {
 public:
  // `inside_reasoning`: the prompt opened a think block. `part_reasoning`: if not, reasoning is content, marks and all.
  // `tools` must outlive the parser.
  AnswerParser(const ToolSet& tools, bool inside_reasoning, bool part_reasoning = true);

  std::vector<AnswerDelta> feed(std::string_view piece);
  // The end of the output: what was held back. The parser must not be fed afterwards.
  std::vector<AnswerDelta> finish();

  bool in_reasoning() const { return splitter_ && splitter_->in_reasoning(); }
  size_t calls() const { return n_calls_; }

 private:
  enum class State : uint8_t { kText, kFunction, kValue, kJsonArguments, kAfterJson, kAfterCall };

  void take(const OutputDelta& delta, bool at_end);
  void take_reasoning(bool at_end);
  size_t find_call_in_thought(bool at_end);
  void give_reasoning(size_t bytes);
  void take_content(std::string_view text, bool at_end);

  // One step of a state; false if it needs more text, or there is none.
  bool step(bool at_end);
  bool step_text(bool at_end);
  bool step_whole_call(bool at_end);
  bool step_function(bool at_end);
  bool begin_value(bool at_end);
  bool step_value(bool at_end);
  bool step_json_arguments(bool at_end);
  bool step_after_json(bool at_end);
  bool step_after_call(bool at_end);

  void begin_call(const Tool& tool, State state);
  void begin_parameter(std::string key, size_t mark_bytes);
  void add_to_value(std::string_view text);
  void end_parameter(std::string_view mark);
  void end_arguments();
  size_t end_of_wrapper();

  void give(AnswerDelta::Kind kind, std::string_view text);
  void give_content(std::string_view text);
  std::string_view rest() const { return std::string_view(held_).substr(at_); }

  const ToolSet& tools_;
  std::optional<ReasoningSplitter> splitter_;
  std::vector<AnswerDelta> out_;
  std::string tail_;  // of the output: the beginning of a character

  std::string thought_;         // reasoning that may be a call
  bool thought_calls_ = false;  // it is one, if the think block doesn't end
  bool any_thought_ = false;    // some reasoning was given

  State state_ = State::kText;
  std::string held_;  // content, from at_ on not yet decided
  size_t at_ = 0;
  size_t wrapper_end_ = std::string::npos;  // in held_, of the next </tool_call>, where it has been looked for
  size_t searched_ = 0;                     // none begins before
  std::string space_;                       // white space behind content
  bool any_content_ = false;

  size_t n_calls_ = 0;
  const Tool* tool_ = nullptr;  // that the open call names
  std::set<std::string, std::less<>> given_;
  std::string key_, value_;  // of the open parameter; its value if it doesn't go out in pieces
  enum class ValueIs : uint8_t { kString, kTyped, kRepeated } value_is_ = ValueIs::kString;
  bool value_begun_ = false;
  bool loose_text_ = false;  // text between two parameters has begun
  JsonMender mender_;
};

}  // namespace sluice
