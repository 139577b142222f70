#include "chat/history.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "chat/jinja/jinja.h"
#include "chat/template.h"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::field;
using jinja::Type;
using jinja::Value;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

std::string_view text_of(const Value& object, std::string_view name) {
  const Value* value = field(object, name);
  return value != nullptr && value->is_string() ? std::string_view(value->text()) : std::string_view();
}

std::string role_of(const Value& message, size_t i) {
  const Value* role = field(message, "role");
  if (role == nullptr || !role->is_string()) {
    fail(ErrorKind::kUsage, "messages[{}].role: missing, or no text; use system, developer, user, assistant or tool",
         i);
  }
  const std::string& name = role->text();
  if (name == "developer") return "system";
  if (name == "function") return "tool";
  if (name == "system" || name == "user" || name == "assistant" || name == "tool") return name;
  fail(ErrorKind::kUsage, "messages[{}].role: \"{}\" is no role; use system, developer, user, assistant or tool", i,
       name);
}

// Parts of text have been joined by prepare_messages; so a list that is left has others.
void check_content(const Value& message, size_t i) {
  const Value* content = field(message, "content");
  if (content == nullptr || content->is_none() || content->is_string()) return;
  if (!content->is(Type::kList)) {
    fail(ErrorKind::kUsage, "messages[{}].content: neither text nor a list of parts", i);
  }
  for (size_t part = 0; part < content->items().size(); ++part) {
    const Value& item = content->items()[part];
    const std::string_view type = text_of(item, "type");
    const Value* text = field(item, "text");
    if (type == "text" && text != nullptr && text->is_string()) continue;
    fail(ErrorKind::kUsage, "messages[{}].content[{}]: a part of type \"{}\"; only text can be read", i, part, type);
  }
}

Value with_role(const Value& message, const std::string& role) {
  Dict out;
  const bool has_reasoning = field(message, "reasoning_content") != nullptr;
  for (const auto& [key, value] : message.as_dict().entries()) {
    if (key.text() == "role") {
      out.set(key, Value(role));
    } else if (key.text() == "reasoning" && !has_reasoning && value.is_string()) {
      out.set("reasoning_content", value);
    } else {
      out.set(key, value);
    }
  }
  return Value::dict(std::move(out));
}

Value system_message(std::string text) {
  Dict out;
  out.set("role", Value("system"));
  out.set("content", Value(std::move(text)));
  return Value::dict(std::move(out));
}

// Arguments in one way of writing.
std::string canonical_json(const std::string& text) {
  try {
    return jinja::to_json(jinja::from_json(text));
  } catch (const Error&) {
    return text;
  }
}

// Content and calls as one text; zero bytes part them.
class Key {
 public:
  explicit Key(std::string_view content) : text_(trimmed(content)) {}
  void add_call(std::string_view name, std::string_view arguments) {
    for (const std::string_view part : {name, arguments}) {
      text_ += '\0';
      text_ += part;
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string key_of(const ParsedAnswer& answer) {
  Key key(answer.content);
  for (const ParsedCall& call : answer.calls) key.add_call(call.name, canonical_json(call.arguments));
  return key.take();
}

std::string key_of(const Value& message) {
  Key key(text_of(message, "content"));
  const Value* calls = field(message, "tool_calls");
  if (calls != nullptr && calls->is(Type::kList)) {
    for (const Value& call : calls->items()) {
      const Value* function = field(call, "function");
      const Value& named = function == nullptr ? call : *function;
      const Value* arguments = field(named, "arguments");
      key.add_call(text_of(named, "name"), arguments == nullptr ? "{}" : jinja::to_json(*arguments));
    }
  }
  return key.take();
}

uint64_t hash_text(std::string_view text) { return xxh64(std::as_bytes(std::span(text))); }

}  // namespace

Value fit_messages(const Value& messages) {
  const Value prepared = prepare_messages(messages);
  std::string system;
  bool any_system = false;
  std::vector<Value> others;
  for (size_t i = 0; i < prepared.items().size(); ++i) {
    const Value& message = prepared.items()[i];
    const std::string role = role_of(message, i);
    check_content(message, i);
    if (role != "system") {
      others.push_back(with_role(message, role));
      continue;
    }
    const std::string_view text = text_of(message, "content");
    any_system = true;
    if (!system.empty() && !text.empty()) system += "\n\n";
    system += text;
  }
  if (any_system) others.insert(others.begin(), system_message(std::move(system)));
  return Value::list(std::move(others));
}

size_t AnswerMemory::Entry::bytes() const {
  return sizeof(Entry) + key.size() + reasoning.size() + answer.opening.size() + answer.tokens.size() * sizeof(int32_t);
}

void AnswerMemory::remember(RememberedAnswer answer, const ParsedAnswer& parsed) {
  std::string key = key_of(parsed);
  const uint64_t hash = hash_text(key);
  std::erase_if(entries_, [&](const Entry& old) {
    const bool same = old.hash == hash && old.answer.prompt_hash == answer.prompt_hash && old.key == key &&
                      old.answer.tokens == answer.tokens;
    if (same) bytes_ -= old.bytes();
    return same;
  });
  answer.has_reasoning = !trimmed(parsed.reasoning).empty();
  Entry entry{hash, std::move(key), std::string(trimmed(parsed.reasoning)), std::move(answer)};
  if (max_answers_ == 0 || entry.bytes() > max_bytes_) return;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (entries_.size() > max_answers_ || bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

std::vector<const RememberedAnswer*> AnswerMemory::find(const Value& message) const {
  std::vector<const RememberedAnswer*> found;
  const std::string key = key_of(message);
  const uint64_t hash = hash_text(key);
  const std::string_view reasoning = trimmed(text_of(message, "reasoning_content"));
  for (const Entry& entry : entries_) {
    const bool same = entry.hash == hash && entry.key == key && (reasoning.empty() || reasoning == entry.reasoning);
    if (same) found.push_back(&entry.answer);
  }
  return found;
}

void AnswerMemory::use(const RememberedAnswer& answer) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (&entry->answer != &answer) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return;
  }
}

uint64_t hash_tokens(std::span<const int32_t> tokens) { return xxh64(std::as_bytes(tokens)); }

}  // namespace sluice
