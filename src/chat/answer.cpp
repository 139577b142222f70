#include "chat/answer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "chat/mark_reader.h"

namespace sluice {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kCallBegin = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";

Match likelier(Match a, Match b) { return std::max(a, b); }

struct Opening {
  Match match = Match::kNo;
  size_t size = 0;  // bytes up to the parameters, or to the object of arguments
  const Tool* tool = nullptr;
  bool json = false;
};

// What `reader` has read, if `name` is that of a tool.
Opening opening_of(const MarkReader& reader, const std::string& name, const ToolSet& tools, bool json) {
  if (!reader.yes()) return {reader.match()};
  const Tool* tool = tools.find(name);
  return tool == nullptr ? Opening{} : Opening{Match::kYes, reader.size(), tool, json};
}

// {"name": NAME, "arguments": {
Opening json_opening(const MarkReader& wrapper, const ToolSet& tools, bool at_end) {
  Opening best;
  for (const std::string_view arguments : {"\"arguments\"", "\"parameters\""}) {
    std::string name;
    MarkReader reader = wrapper;
    reader.literal("{").space().literal("\"name\"").space().literal(":").space().literal("\"").name('"', name);
    reader.space().literal(",").space().literal(arguments).space().literal(":").space();
    MarkReader object(reader.rest(), at_end);
    Opening opening = opening_of(reader, name, tools, true);
    if (opening.match == Match::kYes) opening.match = object.literal("{").match();
    if (opening.match > best.match) best = opening;
  }
  return best;
}

// Whether a call begins at the front of `text`, which begins with "<".
Opening opening_at(std::string_view text, bool at_end, const ToolSet& tools) {
  MarkReader wrapper(text, at_end);
  wrapper.literal(kCallBegin).space();
  std::string wrapped_name, bare_name;
  MarkReader wrapped = wrapper, bare(text, at_end);
  wrapped.literal(kFunction).name('>', wrapped_name);
  bare.literal(kFunction).name('>', bare_name).literal("\n");
  const Opening candidates[] = {opening_of(wrapped, wrapped_name, tools, false), json_opening(wrapper, tools, at_end),
                                opening_of(bare, bare_name, tools, false)};
  return *std::ranges::max_element(candidates, {}, &Opening::match);
}

struct WholeCall {
  const Tool* tool = nullptr;
  std::string arguments = "{}";
};

// A call's JSON with its fields in any order; nothing but a name and arguments, which may be null or missing.
std::optional<WholeCall> whole_call(std::string_view body, const ToolSet& tools) {
  WholeCall call;
  bool any_arguments = false;
  MarkReader reader(body, true);
  reader.space().literal("{").space();
  for (bool more = true; more;) {
    std::string key, name;
    reader.literal("\"").name('"', key).space().literal(":").space();
    if (!reader.yes()) return std::nullopt;
    std::string_view rest = reader.rest();
    if (key == "name" && call.tool == nullptr) {
      MarkReader value(rest, true);
      if (!value.literal("\"").name('"', name).yes()) return std::nullopt;
      call.tool = tools.find(name);
      if (call.tool == nullptr) return std::nullopt;
      rest = value.rest();
    } else if ((key == "arguments" || key == "parameters") && !any_arguments) {
      any_arguments = true;
      if (rest.starts_with("null")) {
        rest.remove_prefix(4);
      } else {
        JsonMender mender;
        call.arguments.clear();
        rest.remove_prefix(mender.feed(rest, call.arguments));
        if (!mender.done()) return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
    reader = MarkReader(rest, true);
    reader.space();
    more = reader.rest().starts_with(',');
    reader.literal(more ? "," : "}").space();
  }
  if (!reader.yes() || !reader.rest().empty() || call.tool == nullptr) return std::nullopt;
  return call;
}

struct ValueEnd {
  Match match = Match::kNo;
  size_t at = 0;    // the value ends there, or may
  size_t mark = 0;  // bytes behind it that are its own end mark
};

// Whether a value ends at the front of `text`, which begins with "<" or a line end.
ValueEnd value_end_at(std::string_view text, bool at_end, const Tool& tool,
                      const std::set<std::string, std::less<>>& given) {
  const size_t line = text.starts_with('\n') ? 1 : 0;
  const std::string_view marks = text.substr(line);
  MarkReader closed(marks, at_end);
  closed.literal(kParameterEnd).space();
  Match match = Match::kNo;
  for (const std::string_view next : {kParameter, kFunctionEnd, kCallEnd, kCallBegin, kFunction}) {
    MarkReader reader = closed;
    match = likelier(match, reader.literal(next).match());
  }
  match = likelier(match, MarkReader(closed).end().match());
  if (match == Match::kYes) return {match, 0, line + kParameterEnd.size()};
  if (line == 0) return {match};

  MarkReader call(marks, at_end), function(marks, at_end), next(marks, at_end);
  match = likelier(match, call.literal(kCallEnd).match());
  function.literal(kFunctionEnd).space();
  match = likelier(match, MarkReader(function).literal(kCallEnd).match());
  match = likelier(match, MarkReader(function).end().match());
  std::string key;
  next.literal(kParameter).name('>', key);
  if (!next.yes() || (tool.parameters.contains(key) && !given.contains(key))) match = likelier(match, next.match());
  return {match, 0, line};
}

// Where the value at the front of `text` ends.
ValueEnd find_value_end(std::string_view text, bool at_end, const Tool& tool,
                        const std::set<std::string, std::less<>>& given) {
  for (size_t at = text.find_first_of("\n<"); at != std::string_view::npos; at = text.find_first_of("\n<", at + 1)) {
    ValueEnd end = value_end_at(text.substr(at), at_end, tool, given);
    end.at = at;
    if (end.match != Match::kNo) return end;
  }
  return {Match::kNo, text.size()};
}

// Bytes at the end of `text` that begin a character and don't complete it.
size_t incomplete_character(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
    const std::string_view end = text.substr(text.size() - size);
    const auto lead = static_cast<unsigned char>(end[0]);
    if (lead >= 0xC0) return utf8::decode(end).status == utf8::Status::kIncomplete ? size : 0;
  }
  return 0;
}

}  // namespace

CallFormat call_format(std::string_view template_source) {
  return template_source.find(kFunction) == std::string_view::npos ? CallFormat::kJson : CallFormat::kXml;
}

std::string call_opening(CallFormat format, std::string_view name, bool inside_reasoning) {
  std::string out = inside_reasoning ? "\n</think>\n\n" : "";
  out += kCallBegin;
  if (format == CallFormat::kXml) {
    out += fmt::format("\n{}{}", kFunction, name);
    return name.empty() ? out : out + ">\n";
  }
  out += "\n{\"name\": \"";
  return name.empty() ? out : out + fmt::format("{}\", \"arguments\": ", name);
}

void ParsedAnswer::add(const AnswerDelta& delta) {
  switch (delta.kind) {
    case AnswerDelta::Kind::kReasoning:
      reasoning += delta.text;
      break;
    case AnswerDelta::Kind::kContent:
      content += delta.text;
      break;
    case AnswerDelta::Kind::kCall:
      calls.push_back({delta.text, ""});
      break;
    case AnswerDelta::Kind::kArguments:
      calls.at(delta.call).arguments += delta.text;
      break;
  }
}

AnswerParser::AnswerParser(const ToolSet& tools, bool inside_reasoning, bool part_reasoning) : tools_(tools) {
  if (part_reasoning) splitter_.emplace(inside_reasoning);
}

std::vector<AnswerDelta> AnswerParser::feed(std::string_view piece) {
  tail_ += piece;
  const size_t whole = tail_.size() - incomplete_character(tail_);
  const std::string text = utf8::sanitize(std::string_view(tail_).substr(0, whole));
  tail_.erase(0, whole);
  take(splitter_ ? splitter_->feed(text) : OutputDelta{"", text}, false);
  return std::exchange(out_, {});
}

std::vector<AnswerDelta> AnswerParser::finish() {
  const std::string text = utf8::sanitize(tail_);
  OutputDelta last = splitter_ ? splitter_->feed(text) : OutputDelta{"", text};
  if (splitter_) {
    const OutputDelta end = splitter_->finish();
    last.reasoning += end.reasoning;
    last.content += end.content;
  }
  take(last, true);
  return std::exchange(out_, {});
}

void AnswerParser::take(const OutputDelta& delta, bool at_end) {
  thought_ += delta.reasoning;
  take_reasoning(at_end);
  take_content(delta.content, at_end);
}

// Gives away reasoning up to a line that begins a call. What follows such a line is reasoning if the think block ends,
// content if the output ends in it.
void AnswerParser::take_reasoning(bool at_end) {
  const bool open = in_reasoning();
  if (open && !thought_calls_ && !tools_.empty()) give_reasoning(find_call_in_thought(at_end));
  if (open && !tools_.empty() && !at_end) return;
  if (!open || !thought_calls_) return give_reasoning(thought_.size());
  splitter_.reset();
  take_content(std::string_view(thought_).substr(thought_.find_first_not_of(kSpace)), false);
}

// Where in thought_ a call begins or may begin, with the white space in front of it; or its end.
size_t AnswerParser::find_call_in_thought(bool at_end) {
  for (size_t at = thought_.find('<'); at != std::string::npos; at = thought_.find('<', at + 1)) {
    const bool begins_line = at == 0 ? !any_thought_ : thought_[at - 1] == '\n';
    if (!begins_line) continue;
    const Match match = opening_at(std::string_view(thought_).substr(at), at_end, tools_).match;
    if (match == Match::kNo) continue;
    thought_calls_ = match == Match::kYes;
    return thought_.substr(0, at).find_last_not_of(kSpace) + 1;
  }
  return thought_.size();
}

void AnswerParser::give_reasoning(size_t bytes) {
  give(AnswerDelta::Kind::kReasoning, std::string_view(thought_).substr(0, bytes));
  any_thought_ = any_thought_ || bytes > 0;
  thought_.erase(0, bytes);
}

void AnswerParser::take_content(std::string_view text, bool at_end) {
  if (tools_.empty()) return give(AnswerDelta::Kind::kContent, text);
  held_ += text;
  while (step(at_end)) {
  }
  held_.erase(0, at_);
  searched_ -= std::min(searched_, at_);
  wrapper_end_ = std::string::npos;
  at_ = 0;
  if (at_end && n_calls_ == 0) give(AnswerDelta::Kind::kContent, space_);
}

bool AnswerParser::step(bool at_end) {
  switch (state_) {
    case State::kText:
      return step_text(at_end);
    case State::kFunction:
      return step_function(at_end);
    case State::kValue:
      return step_value(at_end);
    case State::kJsonArguments:
      return step_json_arguments(at_end);
    case State::kAfterJson:
      return step_after_json(at_end);
    case State::kAfterCall:
      return step_after_call(at_end);
  }
  return false;
}

bool AnswerParser::step_text(bool at_end) {
  const size_t before = std::min(rest().find('<'), rest().size());
  give_content(rest().substr(0, before));
  at_ += before;
  if (rest().empty()) return false;
  const Opening opening = opening_at(rest(), at_end, tools_);
  if (opening.match == Match::kPartial) return false;
  if (opening.match == Match::kNo) return step_whole_call(at_end);
  at_ += opening.size;
  begin_call(*opening.tool, opening.json ? State::kJsonArguments : State::kFunction);
  if (!opening.json) give(AnswerDelta::Kind::kArguments, "{");
  return true;
}

// A "<" that begins no call that can go out in pieces: one whose fields come in another order, or text.
bool AnswerParser::step_whole_call(bool at_end) {
  MarkReader wrapper(rest(), at_end);
  if (wrapper.literal(kCallBegin).space().yes() && wrapper.rest().starts_with('{')) {
    const size_t end = end_of_wrapper();
    if (end == std::string::npos && !at_end) return false;
    const size_t begin = at_ + wrapper.size();
    if (const auto call = whole_call(std::string_view(held_).substr(begin, end - begin), tools_)) {
      begin_call(*call->tool, State::kAfterCall);
      give(AnswerDelta::Kind::kArguments, call->arguments);
      at_ = std::min(end, held_.size());
      return true;
    }
  }
  give_content(rest().substr(0, 1));
  ++at_;
  return true;
}

// Where the next </tool_call> begins. What was searched is not searched again.
size_t AnswerParser::end_of_wrapper() {
  if (wrapper_end_ != std::string::npos && wrapper_end_ >= at_) return wrapper_end_;
  wrapper_end_ = held_.find(kCallEnd, std::max(at_, searched_));
  if (wrapper_end_ == std::string::npos) searched_ = held_.size() - std::min(held_.size(), kCallEnd.size() - 1);
  return wrapper_end_;
}

void AnswerParser::begin_call(const Tool& tool, State state) {
  if (!any_content_) space_.clear();
  tool_ = &tool;
  state_ = state;
  given_.clear();
  loose_text_ = false;
  mender_ = {};
  ++n_calls_;
  give(AnswerDelta::Kind::kCall, tool.name);
}

// Between the parameters of a function.
bool AnswerParser::step_function(bool at_end) {
  if (!loose_text_) at_ += std::min(rest().find_first_not_of(kSpace), rest().size());
  if (rest().empty()) {
    if (at_end) end_arguments();
    return false;
  }
  std::string key;
  MarkReader parameter(rest(), at_end), function_end(rest(), at_end), call_end(rest(), at_end);
  parameter.literal(kParameter).name('>', key);
  function_end.literal(kFunctionEnd);
  call_end.literal(kCallEnd);
  const Opening opening = rest()[0] == '<' ? opening_at(rest(), at_end, tools_) : Opening{};
  if (parameter.yes()) {
    begin_parameter(std::move(key), parameter.size());
  } else if (function_end.yes()) {
    at_ += function_end.size();
    end_arguments();
  } else if (call_end.yes() || opening.match == Match::kYes) {
    end_arguments();
  } else if (parameter.match() == Match::kPartial || function_end.match() == Match::kPartial ||
             call_end.match() == Match::kPartial || opening.match == Match::kPartial) {
    return false;
  } else {  // text that belongs to no parameter
    const size_t size = std::min(rest().find('<', 1), rest().size());
    give_content(rest().substr(0, size));
    at_ += size;
    loose_text_ = true;
  }
  return true;
}

void AnswerParser::begin_parameter(std::string key, size_t mark_bytes) {
  const std::string_view mark = rest().substr(0, mark_bytes);
  key_ = std::move(key);
  value_.clear();
  value_begun_ = false;
  const JsonTypes types = tool_->types_of(key_);
  if (given_.contains(key_)) {
    value_is_ = ValueIs::kRepeated;
    give_content(mark);
  } else {
    value_is_ = types == kJsonString ? ValueIs::kString : ValueIs::kTyped;
    give(AnswerDelta::Kind::kArguments, (given_.empty() ? "" : ", ") + json_quoted(key_) + ": ");
    if (value_is_ == ValueIs::kString) give(AnswerDelta::Kind::kArguments, "\"");
    given_.insert(key_);
  }
  state_ = State::kValue;
  loose_text_ = false;
  at_ += mark_bytes;
}

// The line end behind <parameter=KEY> is the mark's own, unless it belongs to the mark that ends an empty value.
bool AnswerParser::begin_value(bool at_end) {
  if (rest().empty()) return at_end;
  if (rest()[0] == '\n') {
    const Match match = value_end_at(rest(), at_end, *tool_, given_).match;
    if (match == Match::kPartial) return false;
    if (match == Match::kNo) {
      if (value_is_ == ValueIs::kRepeated) give_content("\n");
      ++at_;
    }
  }
  value_begun_ = true;
  return true;
}

bool AnswerParser::step_value(bool at_end) {
  if (!value_begun_ && !begin_value(at_end)) return false;
  const ValueEnd end = find_value_end(rest(), at_end, *tool_, given_);
  add_to_value(rest().substr(0, end.at));
  at_ += end.at;
  if (end.match == Match::kYes) {
    const std::string_view mark = rest().substr(0, end.mark);
    at_ += end.mark;
    end_parameter(mark);
    return true;
  }
  if (at_end) end_parameter("");
  return at_end;
}

void AnswerParser::add_to_value(std::string_view text) {
  if (value_is_ == ValueIs::kRepeated) {
    give_content(text);
  } else if (value_is_ == ValueIs::kTyped) {
    value_ += text;
  } else {
    std::string escaped;
    append_json_escaped(escaped, text);
    give(AnswerDelta::Kind::kArguments, escaped);
  }
}

void AnswerParser::end_parameter(std::string_view mark) {
  if (value_is_ == ValueIs::kRepeated) give_content(mark);
  if (value_is_ == ValueIs::kString) give(AnswerDelta::Kind::kArguments, "\"");
  if (value_is_ == ValueIs::kTyped) {
    give(AnswerDelta::Kind::kArguments, argument_as_json(tool_->types_of(key_), value_));
  }
  state_ = State::kFunction;
}

void AnswerParser::end_arguments() {
  give(AnswerDelta::Kind::kArguments, "}");
  state_ = State::kAfterCall;
}

bool AnswerParser::step_json_arguments(bool at_end) {
  std::string mended;
  at_ += mender_.feed(rest(), mended);
  const bool over = mender_.done() || mender_.broken() || at_end;
  const bool whole = mender_.done();
  if (over && !whole) mender_.close(mended);
  give(AnswerDelta::Kind::kArguments, mended);
  if (over) state_ = whole ? State::kAfterJson : State::kAfterCall;
  return over;
}

// The brace that ends the call's own object.
bool AnswerParser::step_after_json(bool at_end) {
  MarkReader brace(rest(), at_end);
  brace.space().literal("}");
  if (brace.match() == Match::kPartial) return false;
  if (brace.yes()) at_ += brace.size();
  state_ = State::kAfterCall;
  return true;
}

// The end of the wrapper, or another call in it.
bool AnswerParser::step_after_call(bool at_end) {
  MarkReader front(rest(), at_end);
  front.space();
  MarkReader wrapper_end = front;
  wrapper_end.literal(kCallEnd);
  const Opening next = json_opening(front, tools_, at_end);
  if (next.match != Match::kYes && !wrapper_end.yes() && likelier(next.match, wrapper_end.match()) == Match::kPartial) {
    return false;
  }
  state_ = State::kText;
  if (wrapper_end.yes()) {
    at_ += wrapper_end.size();
  } else if (next.match == Match::kYes) {
    at_ += next.size;
    begin_call(*next.tool, State::kJsonArguments);
  }
  return true;
}

void AnswerParser::give(AnswerDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool of_call = kind == AnswerDelta::Kind::kCall || kind == AnswerDelta::Kind::kArguments;
  const size_t call = of_call ? n_calls_ - 1 : 0;
  if (!out_.empty() && out_.back().kind == kind && kind != AnswerDelta::Kind::kCall && out_.back().call == call) {
    out_.back().text += text;
  } else {
    out_.push_back({kind, std::string(text), call});
  }
}

// White space waits for text that makes it part of the content: around calls it is layout.
void AnswerParser::give_content(std::string_view text) {
  const size_t end = text.find_last_not_of(kSpace) + 1;
  if (end > 0) {
    if (!any_content_ && n_calls_ > 0) {
      space_.clear();
      text.remove_prefix(text.find_first_not_of(kSpace));
    }
    give(AnswerDelta::Kind::kContent, std::exchange(space_, {}));
    give(AnswerDelta::Kind::kContent, text.substr(0, text.find_last_not_of(kSpace) + 1));
    any_content_ = true;
  }
  space_ += text.substr(text.find_last_not_of(kSpace) + 1);
}

}  // namespace sluice
