// Filters that make text of text. As in jinja2 they take any value and work on its str().
#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/format.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"
#include "chat/jinja/text_tools.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// The operand as a string; a string stays what it is, its mark included.
Value soft_string(Call& call) { return call.self.is_string() ? call.self : Value(call.string_of(call.self)); }

template <std::string (*kConvert)(std::string_view)>
Value convert(Call& call) {
  const Value text = soft_string(call);
  return Value::string_like(text.as_string(), kConvert(text.text()));
}

// The title filter, other than str.title(), knows as word borders only blanks, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  constexpr std::string_view kBorders = "-({[<";
  std::string out, word;
  bool at_start = true;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = unicode::front_bytes(word);
    out += unicode::to_upper(std::string_view(word).substr(0, first));
    out += unicode::to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  while (!text.empty()) {
    const auto decoded = utf8::decode(text);
    const bool border =
        unicode::is_space(decoded.code_point) ||
        (decoded.code_point < 0x80 && kBorders.find(static_cast<char>(decoded.code_point)) != kBorders.npos);
    if (border != at_start) flush();
    at_start = border;
    word.append(text.substr(0, decoded.length));
    text.remove_prefix(decoded.length);
  }
  flush();
  return out;
}

Value run_trim(Call& call) {
  const Value text = soft_string(call);
  if (!call.has(0) || call[0].is_none()) {
    return Value::string_like(text.as_string(), std::string(unicode::trim(text.text())));
  }
  return Value::string_like(text.as_string(),
                            std::string(strip_characters(text.text(), call.text(0), true, true, call.budget)));
}

Value run_replace(Call& call) {
  const int64_t limit = call.has(2) && !call[2].is_none() ? call.integer(2, -1) : -1;
  return Value(
      replace_text(call.string_of(call.self), call.string_of(call[0]), call.string_of(call[1]), limit, call.budget));
}

Value run_center(Call& call) {
  const Value text = soft_string(call);
  return Value::string_like(text.as_string(), pad_text(text.text(), call.integer(0, 80), " ", true, true, call.budget));
}

Value run_indent(Call& call) {
  std::string indention;
  if (call.has(0) && call[0].is_string()) {
    indention = call[0].text();
  } else {
    const int64_t width = std::max<int64_t>(call.integer(0, 4), 0);
    call.budget.make_text(static_cast<uint64_t>(width));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  const bool first = call.flag(1, false), blank = call.flag(2, false);
  // jinja2 appends a newline before it splits, so that a text ending in one keeps its last, empty line.
  const std::string text = call.string_of(call.self) + "\n";
  const auto lines = split_lines(text, false);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indention;
    out += lines[i];
    call.budget.check_output(out.size());
  }
  return Value(std::move(out));
}

Value run_wordcount(Call& call) {
  int64_t words = 0;
  bool inside = false;
  for (const char32_t c : unicode::decode(call.string_of(call.self))) {
    const bool is_word = c == '_' || unicode::is_alnum(c);
    if (is_word && !inside) ++words;
    inside = is_word;
  }
  return Value(words);
}

Value run_truncate(Call& call) {
  const std::string text = call.string_of(call.self);
  const std::string end = call.text(2, "...");
  const int64_t limit = call.integer(0, 255);
  const int64_t leeway = call.has(3) && !call[3].is_none() ? call.integer(3, 5) : 5;
  const auto end_size = static_cast<int64_t>(unicode::length(end));
  if (limit < end_size || leeway < 0) {
    throw TemplateError(FailureKind::kValue, fmt::format("truncate: length {} or leeway {} too small", limit, leeway));
  }
  if (static_cast<int64_t>(unicode::length(text)) - leeway <= limit) return Value(text);
  std::string_view kept =
      std::string_view(text).substr(0, unicode::byte_offset(text, static_cast<size_t>(limit - end_size)));
  if (!call.flag(1, false)) kept = split_text(kept, " ", 1, true).front();
  return Value(std::string(kept) + end);
}

Value run_format(Call& call) {
  const auto& [positional, named] = call.arguments;
  if (!positional.empty() && !named.empty()) {
    throw TemplateError(FailureKind::kRuntime, "can't handle positional and keyword arguments at the same time");
  }
  if (named.empty()) return printf_format(soft_string(call), Value::tuple(positional), call.budget);
  Dict values;
  for (const auto& [name, value] : named) values.set(Value(name), value);
  return printf_format(soft_string(call), Value::dict(std::move(values)), call.budget);
}

constexpr Native kFilters[] = {
    {"capitalize", "", convert<unicode::capitalize>},
    {"center", "width?", run_center},
    {"format", "*", run_format},
    {"indent", "width? first? blank?", run_indent},
    {"lower", "", convert<unicode::to_lower>},
    {"replace", "old new count?", run_replace},
    {"striptags", "*", run_unsupported},
    {"title", "", convert<title_words>},
    {"trim", "chars?", run_trim},
    {"truncate", "length? killwords? end? leeway?", run_truncate},
    {"upper", "", convert<unicode::to_upper>},
    {"urlencode", "*", run_unsupported},
    {"urlize", "*", run_unsupported},
    {"wordcount", "", run_wordcount},
    {"wordwrap", "*", run_unsupported},
};

}  // namespace

std::span<const Native> text_filters() { return kFilters; }

}  // namespace sluice::jinja
