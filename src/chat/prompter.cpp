#include "chat/prompter.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "chat/jinja/jinja.h"
#include "chat/reasoning.h"

namespace sluice {

// A message of the history that is known, and what it may be.
struct ChatPrompter::Known {
  size_t message;
  std::vector<const RememberedAnswer*> answers;  // all with the same opening, the likeliest first
  bool marks_reasoning;
  size_t begin = 0, end = 0;  // in the rendered text: behind the opening, and behind the content
};

struct ChatPrompter::Rendered {
  std::string text;
  std::vector<Known> known;  // in the order of the text
};

namespace {

using jinja::Dict;
using jinja::Type;
using jinja::Value;

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";

std::string text_of(const Value& message, std::string_view name) {
  const Value* value = message.as_dict().find(name);
  return value != nullptr && value->is_string() ? value->text() : std::string();
}

bool has_role(const Value& message, std::string_view role) { return text_of(message, "role") == role; }

bool has_calls(const Value& message) {
  const Value* calls = message.as_dict().find(std::string_view("tool_calls"));
  return calls != nullptr && calls->is(Type::kList) && !calls->items().empty();
}

std::string text_of(const chat::Tokenizer& tokenizer, std::optional<int32_t> token) {
  return token ? tokenizer.text(*token) : std::string();
}

// Text that nobody writes: code points of the private planes 15 and 16 around a number.
std::string mark(bool reasoning, size_t message) {
  return fmt::format("\xF3\xB5\xB0\x9A{}{}\xF4\x81\xB2\xA7", reasoning ? 'r' : 'c', message);
}

// `message` with marks for what an answer generated, and nothing else of it.
Value marked(const Value& message, size_t i, bool marks_reasoning) {
  Dict out;
  for (const auto& [key, value] : message.as_dict().entries()) {
    if (key.text() != "tool_calls" && key.text() != "reasoning_content") out.set(key, value);
  }
  out.set("content", Value(mark(false, i)));
  if (marks_reasoning) out.set("reasoning_content", Value(mark(true, i)));
  return Value::dict(std::move(out));
}

// Where `what` stands in `text`, if it does so once.
std::optional<size_t> find_once(std::string_view text, std::string_view what) {
  const size_t at = text.find(what);
  if (at == std::string_view::npos || text.find(what, at + 1) != std::string_view::npos) return std::nullopt;
  return at;
}

// Whether `front`, which ends where the first mark stands, ends with `opening`; then where that ends. Behind it there
// may be the beginning of a think block that the model opens itself.
std::optional<size_t> end_of_opening(std::string_view front, std::string_view opening, bool before_reasoning) {
  if (front.ends_with(opening)) return front.size();
  if (!before_reasoning) return std::nullopt;
  const size_t think = front.rfind(kThink);
  if (think == std::string_view::npos) return std::nullopt;
  const bool bare = front.find_first_not_of(" \t\r\n", think + kThink.size()) == std::string_view::npos;
  return bare && front.substr(0, think).ends_with(opening) ? std::optional(think) : std::nullopt;
}

// The beginning of an answer that is a message's text. `open`: the template has opened a think block.
std::string continuation(const Value& message, bool open) {
  const std::string reasoning = text_of(message, "reasoning_content"), content = text_of(message, "content");
  std::string out;
  if (!reasoning.empty()) out = open ? reasoning : fmt::format("{}\n{}", kThink, reasoning);
  const bool closes = !content.empty() && (open || !reasoning.empty());
  if (closes) out += fmt::format("\n{}\n\n", kThinkEnd);
  return out + content;
}

void append(std::vector<int32_t>& tokens, std::span<const int32_t> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

// Of answers with the same text, the one to this very prompt, if it is there.
const RememberedAnswer& best_answer(const std::vector<const RememberedAnswer*>& answers,
                                    std::span<const int32_t> prompt) {
  const uint64_t hash = hash_tokens(prompt);
  const auto same = std::ranges::find(answers, hash, &RememberedAnswer::prompt_hash);
  return same == answers.end() ? *answers.front() : **same;
}

}  // namespace

std::vector<int32_t> prompt_tokens(const chat::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens = tokenizer.encode(text, /*parse_special=*/true);
  const bool wanted = tokenizer.add_bos() && tokenizer.bos().has_value();
  if (wanted && (tokens.empty() || tokens[0] != *tokenizer.bos())) tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

RememberedAnswer remembered_answer(const ChatPromptTokens& prompt, std::span<const int32_t> generated) {
  const auto all = std::span(prompt.tokens);
  RememberedAnswer answer{hash_tokens(all.first(prompt.answer_begin)), prompt.opening, {}};
  append(answer.tokens, all.subspan(prompt.answer_begin));
  append(answer.tokens, generated);
  return answer;
}

ChatPrompter::ChatPrompter(const chat::Tokenizer& tokenizer, const std::string& template_source)
    : tokenizer_(tokenizer),
      template_(template_source, text_of(tokenizer, tokenizer.bos()), text_of(tokenizer, tokenizer.eos())),
      call_format_(sluice::call_format(template_source)) {
  find_turn_mark();
}

// What a short chat ends with only when an answer is asked for: the first control token of that.
void ChatPrompter::find_turn_mark() {
  ChatPrompt chat{jinja::from_json(R"([{"role": "user", "content": "x"}])"), {}, {}, true, {}};
  std::vector<int32_t> with, without;
  try {
    with = prompt_tokens(tokenizer_, template_.render(chat));
    chat.add_generation_prompt = false;
    without = prompt_tokens(tokenizer_, template_.render(chat));
  } catch (const jinja::TemplateError&) {
    return;  // a template that needs more than this
  }
  auto at = std::ranges::mismatch(without, with).in2;
  at = std::find_if(at, with.end(), [&](int32_t token) { return tokenizer_.is_control(token); });
  if (at != with.end()) turn_mark_ = *at;
}

ChatPrompter::Rendered ChatPrompter::render(const ChatPrompt& chat, const AnswerMemory* memory) const {
  std::vector<Known> known;
  const std::vector<Value>& messages = chat.messages.items();
  for (size_t i = 0; memory != nullptr && i < messages.size(); ++i) {
    if (!has_role(messages[i], "assistant")) continue;
    std::vector<const RememberedAnswer*> answers = memory->find(messages[i]);
    const auto marks_reasoning = [](const RememberedAnswer& answer) {
      return answer.has_reasoning || prompt_opens_reasoning(answer.opening);
    };
    std::erase_if(answers, [&, front = answers.empty() ? nullptr : answers.front()](const RememberedAnswer* answer) {
      return answer->opening.empty() || answer->opening != front->opening ||
             marks_reasoning(*answer) != marks_reasoning(*front);
    });
    if (!answers.empty()) known.push_back({i, answers, marks_reasoning(*answers.front())});
  }
  // With marks for all; for those where that worked, if they still do; for none.
  for (bool again = false; !known.empty(); again = true) {
    ChatPrompt marked_chat = chat;
    std::vector<Value> with_marks = messages;
    for (const Known& answer : known) {
      with_marks[answer.message] = marked(messages[answer.message], answer.message, answer.marks_reasoning);
    }
    marked_chat.messages = Value::list(std::move(with_marks));
    std::string text;
    try {
      text = template_.render(marked_chat);
    } catch (const jinja::TemplateError&) {
      break;  // one that wants a message's calls, or something in its text
    }
    size_t before = 0;
    const size_t lost = std::erase_if(known, [&](Known& answer) {
      const std::string content_mark = mark(false, answer.message);
      const auto content = find_once(text, content_mark);
      const auto first = answer.marks_reasoning ? find_once(text, mark(true, answer.message)) : content;
      if (!content || !first || *first > *content || *first < before) return true;
      const auto begin =
          end_of_opening(std::string_view(text).substr(0, *first), answer.answers[0]->opening, answer.marks_reasoning);
      if (!begin || *begin < before) return true;
      answer.begin = *begin;
      answer.end = before = *content + content_mark.size();
      return false;
    });
    if (lost == 0) return {std::move(text), std::move(known)};
    if (again) break;
  }
  return {template_.render(chat), {}};
}

ChatPromptTokens ChatPrompter::prompt(const PromptRequest& request, AnswerMemory* memory) const {
  ChatPrompt chat = request.chat;
  std::vector<Value> messages = fit_messages(chat.messages).items();
  std::optional<Value> continued;
  if (request.continue_final_message && !messages.empty() && has_role(messages.back(), "assistant") &&
      !has_calls(messages.back())) {
    continued = std::move(messages.back());
    messages.pop_back();
    chat.add_generation_prompt = true;
  }
  const bool has_system = (!messages.empty() && has_role(messages[0], "system")) ||
                          (chat.tools.is(Type::kList) && !chat.tools.items().empty());
  chat.messages = Value::list(std::move(messages));
  const Rendered rendered = render(chat, memory);

  ChatPromptTokens out;
  size_t at = 0;
  const auto add_text = [&](size_t end) {
    const std::string_view text = std::string_view(rendered.text).substr(at, end - at);
    append(out.tokens, at == 0 ? prompt_tokens(tokenizer_, text) : tokenizer_.encode(text, /*parse_special=*/true));
    out.text += text;
  };
  for (const Known& known : rendered.known) {
    add_text(known.begin);
    const RememberedAnswer& answer = best_answer(known.answers, out.tokens);
    memory->use(answer);
    append(out.tokens, answer.tokens);
    out.text += tokenizer_.decode(answer.tokens, /*skip_control=*/false);
    at = known.end;
  }
  add_text(rendered.text.size());
  out.answer_begin = out.tokens.size();
  out.turn_starts = turn_starts(out.tokens, has_system);
  if (!chat.add_generation_prompt) return out;

  out.opens_reasoning = prompt_opens_reasoning(rendered.text);
  if (turn_mark_) {
    const size_t turn = rendered.text.rfind(tokenizer_.text(*turn_mark_));
    if (turn != std::string::npos) out.opening = rendered.text.substr(turn);
  }
  if (continued) out.answer_start = continuation(*continued, out.opens_reasoning);
  if (request.call) {
    const bool thinking = out.opens_reasoning && out.answer_start.find(kThinkEnd) == std::string::npos;
    out.answer_start += call_opening(call_format_, *request.call, thinking);
  }
  append(out.tokens, tokenizer_.encode(out.answer_start, /*parse_special=*/true));
  out.text += out.answer_start;
  return out;
}

std::vector<size_t> ChatPrompter::turn_starts(std::span<const int32_t> tokens, bool has_system) const {
  std::vector<size_t> marks;
  for (size_t i = 0; turn_mark_ && i < tokens.size(); ++i) {
    if (tokens[i] == *turn_mark_) marks.push_back(i);
  }
  // The first message begins where the prompt does. With one message alone there is nothing in between.
  std::vector<size_t> starts;
  for (size_t i = 1; i < marks.size(); ++i) {
    if ((i == 1 && has_system) || i + 2 >= marks.size()) starts.push_back(marks[i]);
  }
  if (marks.size() == 1 && marks[0] > 0) starts.push_back(marks[0]);  // a template that marks only answers
  return starts;
}

}  // namespace sluice
