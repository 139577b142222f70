#include "chat/template.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using jinja::Dict;
using jinja::field;
using jinja::Type;
using jinja::Value;

// A copy of `object` with one field changed.
Value with_field(const Value& object, std::string_view name, Value value) {
  Dict out;
  for (const auto& [key, old] : object.as_dict().entries()) out.set(key, old);
  out.set(Value(name), std::move(value));
  return Value::dict(std::move(out));
}

// The texts of a list that holds nothing but text parts.
std::optional<std::string> joined_text(const Value& content) {
  if (!content.is(Type::kList)) return std::nullopt;
  std::string out;
  for (const Value& part : content.items()) {
    const Value* type = field(part, "type");
    const Value* text = field(part, "text");
    if (type == nullptr || !type->is_string() || type->text() != "text" || text == nullptr || !text->is_string()) {
      return std::nullopt;
    }
    out += text->text();
  }
  return out;
}

Value parse_arguments(const std::string& text, const std::string& place) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Value::dict({});
  Value out;
  try {
    out = jinja::from_json(text);
  } catch (const Error& error) {
    fail(ErrorKind::kFormat, "{}: {}; send the arguments as a JSON object", place, error.what());
  }
  if (!out.is(Type::kDict)) fail(ErrorKind::kFormat, "{}: not a JSON object; send the arguments as one", place);
  return out;
}

// {"function": {"arguments": ...}} or, as some clients write it, {"arguments": ...}.
Value prepare_call(const Value& call, const std::string& place) {
  if (const Value* function = field(call, "function"); function != nullptr && function->is(Type::kDict)) {
    return with_field(call, "function", prepare_call(*function, place + ".function"));
  }
  const Value* arguments = field(call, "arguments");
  if (arguments == nullptr || !arguments->is_string()) return call;
  return with_field(call, "arguments", parse_arguments(arguments->text(), place + ".arguments"));
}

Value prepare_message(const Value& message, const std::string& place) {
  if (!message.is(Type::kDict)) fail(ErrorKind::kFormat, "{}: not an object", place);
  Value out = message;
  if (const Value* content = field(message, "content")) {
    if (auto text = joined_text(*content)) out = with_field(out, "content", Value(std::move(*text)));
  }
  if (const Value* calls = field(message, "tool_calls"); calls != nullptr && calls->is(Type::kList)) {
    std::vector<Value> prepared;
    for (size_t i = 0; i < calls->items().size(); ++i) {
      prepared.push_back(prepare_call(calls->items()[i], fmt::format("{}.tool_calls[{}]", place, i)));
    }
    out = with_field(out, "tool_calls", Value::list(std::move(prepared)));
  }
  return out;
}

bool lacks_content(const Value& message) {
  const Value* content = field(message, "content");
  return content == nullptr || content->is_none();
}

Value with_empty_contents(const Value& messages) {
  std::vector<Value> out;
  for (const Value& message : messages.items()) {
    out.push_back(lacks_content(message) ? with_field(message, "content", Value("")) : message);
  }
  return Value::list(std::move(out));
}

Value context_of(const ChatPrompt& prompt, const Value& messages, const std::string& bos, const std::string& eos) {
  Dict out;
  out.set("messages", messages);
  out.set("tools", prompt.tools);
  out.set("documents", Value());
  out.set("add_generation_prompt", Value(prompt.add_generation_prompt));
  if (!bos.empty()) out.set("bos_token", Value(bos));
  if (!eos.empty()) out.set("eos_token", Value(eos));
  if (prompt.enable_thinking) out.set("enable_thinking", Value(*prompt.enable_thinking));
  if (prompt.variables.is(Type::kDict)) {
    for (const auto& [name, value] : prompt.variables.as_dict().entries()) out.set(name, value);
  }
  return Value::dict(std::move(out));
}

}  // namespace

Value prepare_messages(const Value& messages) {
  if (!messages.is(Type::kList)) fail(ErrorKind::kFormat, "messages: not a list; send a list of messages");
  std::vector<Value> out;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    out.push_back(prepare_message(messages.items()[i], fmt::format("messages[{}]", i)));
  }
  return Value::list(std::move(out));
}

ChatTemplate::ChatTemplate(std::string_view source, std::string bos_token, std::string eos_token)
    : template_(jinja::Template::parse(source)), bos_token_(std::move(bos_token)), eos_token_(std::move(eos_token)) {}

std::string ChatTemplate::render(const ChatPrompt& prompt, const jinja::Environment& environment) const {
  const Value messages = prepare_messages(prompt.messages);
  const bool complete = std::none_of(messages.items().begin(), messages.items().end(), lacks_content);
  try {
    return template_.render(context_of(prompt, messages, bos_token_, eos_token_), environment);
  } catch (const jinja::TemplateError& error) {
    const bool of_content =
        error.failure() == jinja::FailureKind::kType || error.failure() == jinja::FailureKind::kUndefined;
    if (complete || !of_content) throw;
  }
  return template_.render(context_of(prompt, with_empty_contents(messages), bos_token_, eos_token_), environment);
}

}  // namespace sluice
