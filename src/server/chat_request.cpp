#include "server/chat_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api_error.h"

namespace sluice::server {

namespace {

using jinja::Type;
using jinja::Value;

const Value* member(const Value& object, std::string_view name) {
  const Value* value = jinja::field(object, name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

std::string string_member(const Value& object, std::string_view name) {
  const Value* value = member(object, name);
  return value != nullptr && value->is_string() ? value->text() : std::string();
}

void check_content(const Value& content, size_t index) {
  if (content.is_string()) return;
  if (!content.is(Type::kList))
    bad_field("messages", fmt::format("content of message {} must be a string or a list of parts", index));
  for (const Value& part : content.items()) {
    const std::string type = string_member(part, "type");
    const Value* text = member(part, "text");
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
      bad_field("messages", fmt::format("message {} has a part of type {}: the server takes text only", index,
                                        type.empty() ? "none" : type.substr(0, 32)));
    if (text == nullptr || !text->is_string())
      bad_field("messages", fmt::format("message {} has a part without text", index));
  }
}

void check_messages(const Value& messages, const RequestLimits& limits) {
  const std::vector<Value>& list = messages.items();
  if (list.empty()) bad_field("messages", "is empty: there is nothing to answer");
  if (list.size() > limits.messages)
    bad_field("messages", fmt::format("{} messages; the limit is {}", list.size(), limits.messages));
  for (size_t i = 0; i < list.size(); ++i) {
    if (string_member(list[i], "role").empty())
      bad_field("messages", fmt::format("message {} must be an object with a role", i));
    if (const Value* content = member(list[i], "content")) check_content(*content, i);
    const Value* calls = member(list[i], "tool_calls");
    if (calls != nullptr && !calls->is(Type::kList))
      bad_field("messages", fmt::format("tool_calls of message {} must be a list", i));
  }
}

// The names of the functions, in the list's order.
std::vector<std::string> check_tools(const Value& tools, const RequestLimits& limits) {
  std::vector<std::string> names;
  if (tools.items().size() > limits.tools)
    bad_field("tools", fmt::format("{} tools; the limit is {}", tools.items().size(), limits.tools));
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const Value& tool = tools.items()[i];
    const Value* function = member(tool, "function");
    if (string_member(tool, "type") != "function" || function == nullptr)
      bad_field("tools", fmt::format("tool {} must be {{\"type\": \"function\", \"function\": {{...}}}}", i));
    names.push_back(string_member(*function, "name"));
    if (names.back().empty() || names.back().size() > limits.name_bytes)
      bad_field("tools",
                fmt::format("the function of tool {} must have a name of at most {} bytes", i, limits.name_bytes));
  }
  return names;
}

void read_tool_choice(const Value& choice, const std::vector<std::string>& names, ChatQuestion& question) {
  if (choice.is_string()) {
    const std::string& text = choice.text();
    if (text != "auto" && text != "none" && text != "required")
      bad_field("tool_choice", "must be auto, none, required, or an object that names a function");
    question.tool_choice = text == "auto"   ? ToolChoice::kAuto
                           : text == "none" ? ToolChoice::kNone
                                            : ToolChoice::kRequired;
  } else {
    const Value* function = member(choice, "function");
    question.tool_name = function == nullptr ? std::string() : string_member(*function, "name");
    if (std::ranges::find(names, question.tool_name) == names.end())
      bad_field("tool_choice", "names a function that is not among the tools");
    question.tool_choice = ToolChoice::kNamed;
  }
  if (names.empty() && question.tool_choice == ToolChoice::kRequired)
    bad_field("tool_choice", "a call is required, but there are no tools");
  // Of one function, its name is as certain as that it is called: small models then have no chance to invent another.
  if (names.size() == 1 && question.tool_choice == ToolChoice::kRequired) {
    question.tool_choice = ToolChoice::kNamed;
    question.tool_name = names[0];
  }
}

// The variables of the template, and whether one of them says if the model thinks.
void read_variables(const Fields& fields, ChatQuestion& question) {
  jinja::Dict variables;
  if (const Value* given = fields.find("chat_template_kwargs")) {
    for (const auto& [key, value] : given->as_dict().entries()) {
      if (key.text() != "enable_thinking") {
        variables.set(key, value);
        continue;
      }
      if (!value.is(Type::kBool)) bad_field("chat_template_kwargs", "enable_thinking must be boolean");
      question.enable_thinking = value.as_bool();
    }
  }
  if (const auto thinking = fields.boolean("enable_thinking")) question.enable_thinking = *thinking;
  if (const auto effort = fields.text("reasoning_effort")) {
    if (*effort == "none") {
      question.enable_thinking = false;
    } else {
      variables.set(Value("reasoning_effort"), Value(*effort));
    }
  }
  if (variables.size() > 0) question.variables = Value::dict(std::move(variables));
}

std::optional<uint32_t> read_likely(const Fields& fields) {
  const auto top = fields.integer("top_logprobs");
  if (fields.flag("logprobs", false)) return static_cast<uint32_t>(top.value_or(0));
  if (top) bad_field("top_logprobs", "needs \"logprobs\": true");
  const auto n = fields.integer("n_probs").value_or(0);
  return n > 0 ? std::optional(static_cast<uint32_t>(n)) : std::nullopt;
}

}  // namespace

ChatQuestion read_question(const Fields& fields, const RequestLimits& limits) {
  ChatQuestion question;
  question.messages = *fields.find("messages");
  check_messages(question.messages, limits);
  std::vector<std::string> names;
  if (const Value* tools = fields.find("tools")) {
    names = check_tools(*tools, limits);
    if (!names.empty()) question.tools = *tools;
  }
  if (const Value* choice = fields.find("tool_choice")) read_tool_choice(*choice, names, question);
  read_variables(fields, question);
  question.add_generation_prompt = fields.flag("add_generation_prompt", true);
  question.continue_final_message = fields.flag("continue_final_message", false);
  if (question.continue_final_message && question.tool_choice != ToolChoice::kAuto &&
      question.tool_choice != ToolChoice::kNone)
    bad_field("continue_final_message", "an answer that has begun can't be made to begin with a call");
  return question;
}

ChatRequest read_chat(const Fields& fields, const RequestContext& context, const ChatDefaults& defaults) {
  ChatRequest request;
  request.question = read_question(fields, context.limits);
  request.question.part_reasoning = defaults.part_reasoning;
  if (const auto format = fields.text("reasoning_format")) {
    if (*format != "none" && *format != "auto" && *format != "deepseek")
      bad_field("reasoning_format", "must be none, auto or deepseek");
    request.question.part_reasoning = *format != "none";
  }
  request.question.reasoning_tokens = defaults.reasoning_tokens;
  for (const std::string_view name : {"thinking_budget_tokens", "reasoning_budget_tokens"})
    if (const auto tokens = fields.integer(name))
      request.question.reasoning_tokens = *tokens < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(*tokens));
  request.generation = read_generation(fields, context);
  request.generation.n_likely = read_likely(fields);
  request.options = read_answer_options(fields);
  request.one_call = !fields.flag("parallel_tool_calls", true);
  return request;
}

}  // namespace sluice::server
