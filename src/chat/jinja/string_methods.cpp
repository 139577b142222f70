// Methods of str. Lengths and indices count code points.
#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "chat/jinja/format.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"
#include "chat/jinja/text_tools.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

const std::string& self_text(const Call& call) { return call.self.text(); }
Value like_self(const Call& call, std::string text) {
  return Value::string_like(call.self.as_string(), std::move(text));
}

template <std::string (*kConvert)(std::string_view)>
Value convert(Call& call) {
  return like_self(call, kConvert(self_text(call)));
}

template <bool kLeft, bool kRight>
Value strip(Call& call) {
  std::string_view text = self_text(call);
  if (call.has(0) && !call[0].is_none()) {
    return like_self(call, std::string(strip_characters(text, call.text(0), kLeft, kRight, call.budget)));
  }
  if (kLeft) text = unicode::trim_left(text);
  if (kRight) text = unicode::trim_right(text);
  return like_self(call, std::string(text));
}

// The part of the text that optional start and end arguments select, and where it begins.
struct Window {
  std::string_view text;
  int64_t start;
  bool valid;  // start lies within the text
};

Window window(const Call& call, size_t start_index) {
  const std::string_view text = self_text(call);
  const bool has_start = call.has(start_index) && !call[start_index].is_none();
  const bool has_end = call.has(start_index + 1) && !call[start_index + 1].is_none();
  if (!has_start && !has_end) return {text, 0, true};
  const auto size = static_cast<int64_t>(unicode::length(text));
  const auto resolve = [&](bool given, size_t index, int64_t fallback) {
    int64_t at = given ? call.integer(index, fallback) : fallback;
    if (at < 0) at = std::max<int64_t>(at + size, 0);
    return at;
  };
  const int64_t start = resolve(has_start, start_index, 0);
  const int64_t end = std::min(resolve(has_end, start_index + 1, size), size);
  if (start > size || start > end) return {{}, start, false};
  const size_t from = unicode::byte_offset(text, static_cast<size_t>(start));
  const std::string_view rest = text.substr(from);
  return {rest.substr(0, unicode::byte_offset(rest, static_cast<size_t>(end - start))), start, true};
}

template <bool kAtStart>
Value has_affix(Call& call) {
  const Window part = window(call, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      fail_type(fmt::format("{} first arg must be str or a tuple of str, not {}", kAtStart ? "startswith" : "endswith",
                            type_name(affix)));
    }
    return part.valid && (kAtStart ? part.text.starts_with(affix.text()) : part.text.ends_with(affix.text()));
  };
  if (!call[0].is(Type::kTuple)) return Value(matches(call[0]));
  return Value(std::any_of(call[0].items().begin(), call[0].items().end(), matches));
}

// Index in code points of the first or last occurrence, -1 for none.
template <bool kFirst>
int64_t find_text(const Call& call) {
  const Window part = window(call, 1);
  const std::string& wanted = call.text(0);
  call.budget.search(self_text(call).size(), wanted.size());
  if (!part.valid) return -1;
  const size_t at = kFirst ? part.text.find(wanted) : part.text.rfind(wanted);
  if (at == std::string_view::npos) return -1;
  return part.start + static_cast<int64_t>(unicode::length(part.text.substr(0, at)));
}

template <bool kFirst>
Value find(Call& call) {
  return Value(find_text<kFirst>(call));
}

template <bool kFirst>
Value index(Call& call) {
  const int64_t at = find_text<kFirst>(call);
  if (at < 0) throw TemplateError(FailureKind::kValue, "substring not found");
  return Value(at);
}

Value count(Call& call) {
  const Window part = window(call, 1);
  const std::string& wanted = call.text(0);
  call.budget.search(part.text.size(), wanted.size());
  if (!part.valid) return Value(0);
  if (wanted.empty()) return Value(unicode::length(part.text) + 1);
  int64_t found = 0;
  for (size_t at = part.text.find(wanted); at != std::string_view::npos;
       at = part.text.find(wanted, at + wanted.size())) {
    ++found;
  }
  return Value(found);
}

Value replace(Call& call) {
  return like_self(call, replace_text(self_text(call), call.text(0), call.text(1), call.integer(2, -1), call.budget));
}

Value strings(const Call& call, const std::vector<std::string_view>& parts) {
  call.budget.make_items(3 * parts.size());
  call.budget.make(self_text(call).size());
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(like_self(call, std::string(part)));
  return Value::list(std::move(out));
}

template <bool kFromRight>
Value split(Call& call) {
  const int64_t limit = call.integer(1, -1);
  if (!call.has(0) || call[0].is_none()) return strings(call, split_space(self_text(call), limit, kFromRight));
  const std::string& separator = call.text(0);
  if (separator.empty()) throw TemplateError(FailureKind::kValue, "empty separator");
  call.budget.search(self_text(call).size(), separator.size());
  return strings(call, split_text(self_text(call), separator, limit, kFromRight));
}

Value splitlines(Call& call) {
  call.budget.step(self_text(call).size() / 16);
  return strings(call, split_lines(self_text(call), call.flag(0, false)));
}

template <bool kFromRight>
Value partition(Call& call) {
  const std::string_view text = self_text(call);
  const std::string& separator = call.text(0);
  if (separator.empty()) throw TemplateError(FailureKind::kValue, "empty separator");
  call.budget.search(text.size(), separator.size());
  call.budget.make_text(text.size());
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string_view piece) { return like_self(call, std::string(piece)); };
  if (at == std::string_view::npos) {
    return kFromRight ? Value::tuple({part(""), part(""), part(text)}) : Value::tuple({part(text), part(""), part("")});
  }
  return Value::tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value join(Call& call) {
  const Items items = iterate(call[0], call.budget);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      fail_type(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    }
    if (i > 0) out += self_text(call);
    out += items[i].text();
    call.budget.check_output(out.size());
  }
  return like_self(call, std::move(out));
}

Value format(Call& call) { return brace_format(call.self, call.arguments, call.budget); }

template <bool kPrefix>
Value remove_affix(Call& call) {
  std::string_view text = self_text(call);
  const std::string& affix = call.text(0);
  if (kPrefix ? text.starts_with(affix) : text.ends_with(affix)) {
    text = kPrefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size());
  }
  return like_self(call, std::string(text));
}

std::string fill_character(const Call& call, size_t index) {
  std::string fill = call.text(index, " ");
  if (unicode::length(fill) != 1) fail_type("The fill character must be exactly one character long");
  return fill;
}

template <bool kPadLeft, bool kPadRight>
Value justify(Call& call) {
  const std::string fill = fill_character(call, 1);
  return like_self(call, pad_text(self_text(call), call.integer(0, 0), fill, kPadLeft, kPadRight, call.budget));
}

Value zfill(Call& call) {
  std::string_view text = self_text(call);
  const int64_t width = call.integer(0, 0);
  const bool signed_text = text.starts_with('-') || text.starts_with('+');
  const std::string sign(text.substr(0, signed_text ? 1 : 0));
  text.remove_prefix(sign.size());
  return like_self(call, sign + pad_text(text, std::max<int64_t>(width, 0) - static_cast<int64_t>(sign.size()), "0",
                                         true, false, call.budget));
}

Value expandtabs(Call& call) {
  const int64_t size = call.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (const char c : self_text(call)) {
    if (c == '\t') {
      const int64_t missing = size > 0 ? size - column % size : 0;
      call.budget.make_text(static_cast<uint64_t>(missing));
      out.append(static_cast<size_t>(missing), ' ');
      call.budget.check_output(out.size());
      column += missing;
      continue;
    }
    out += c;
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
    if (c == '\n' || c == '\r') column = 0;
  }
  return like_self(call, std::move(out));
}

// All characters are of the class, and there is one.
template <bool (*kIs)(char32_t)>
Value all_are(Call& call) {
  const auto points = unicode::decode(self_text(call));
  return Value(!points.empty() && std::all_of(points.begin(), points.end(), kIs));
}

Value isprintable(Call& call) {
  const auto points = unicode::decode(self_text(call));
  return Value(std::all_of(points.begin(), points.end(), unicode::is_printable));
}

Value isascii(Call& call) {
  const std::string& text = self_text(call);
  return Value(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value isidentifier(Call& call) {
  const auto points = unicode::decode(self_text(call));
  const auto is_letter = [](char32_t c) { return c == '_' || unicode::is_alpha(c); };
  return Value(!points.empty() && is_letter(points[0]) && std::all_of(points.begin(), points.end(), [&](char32_t c) {
    return is_letter(c) || unicode::is_decimal(c);
  }));
}

template <bool kUpper>
Value is_case(Call& call) {
  return find_test(kUpper ? "upper" : "lower")->run(call);
}

Value istitle(Call& call) {
  bool any = false, inside_word = false;
  for (const char32_t c : unicode::decode(self_text(call))) {
    const bool starts = unicode::is_upper(c) || unicode::is_title(c);
    if (starts && inside_word) return Value(false);
    if (unicode::is_lower(c) && !inside_word) return Value(false);
    inside_word = starts || unicode::is_lower(c);
    any |= inside_word;
  }
  return Value(any);
}

constexpr Native kMethods[] = {
    {"capitalize", "", convert<unicode::capitalize>},
    {"casefold", "", convert<unicode::fold_case>},
    {"center", "width fillchar?", justify<true, true>},
    {"count", "sub start? end?", count},
    {"encode", "*", run_unsupported},
    {"endswith", "suffix start? end?", has_affix<false>},
    {"expandtabs", "tabsize?", expandtabs},
    {"find", "sub start? end?", find<true>},
    {"format", "*", format},
    {"format_map", "*", run_unsupported},
    {"index", "sub start? end?", index<true>},
    {"isalnum", "", all_are<unicode::is_alnum>},
    {"isalpha", "", all_are<unicode::is_alpha>},
    {"isascii", "", isascii},
    {"isdecimal", "", all_are<unicode::is_decimal>},
    {"isdigit", "", all_are<unicode::is_digit>},
    {"isidentifier", "", isidentifier},
    {"islower", "", is_case<false>},
    {"isnumeric", "", all_are<unicode::is_numeric>},
    {"isprintable", "", isprintable},
    {"isspace", "", all_are<unicode::is_space>},
    {"istitle", "", istitle},
    {"isupper", "", is_case<true>},
    {"join", "iterable", join},
    {"ljust", "width fillchar?", justify<false, true>},
    {"lower", "", convert<unicode::to_lower>},
    {"lstrip", "chars?", strip<true, false>},
    {"maketrans", "*", run_unsupported},
    {"partition", "sep", partition<false>},
    {"removeprefix", "prefix", remove_affix<true>},
    {"removesuffix", "suffix", remove_affix<false>},
    {"replace", "old new count?", replace},
    {"rfind", "sub start? end?", find<false>},
    {"rindex", "sub start? end?", index<false>},
    {"rjust", "width fillchar?", justify<true, false>},
    {"rpartition", "sep", partition<true>},
    {"rsplit", "sep? maxsplit?", split<true>},
    {"rstrip", "chars?", strip<false, true>},
    {"split", "sep? maxsplit?", split<false>},
    {"splitlines", "keepends?", splitlines},
    {"startswith", "prefix start? end?", has_affix<true>},
    {"strip", "chars?", strip<true, true>},
    {"swapcase", "", convert<unicode::swap_case>},
    {"title", "", convert<unicode::to_title>},
    {"translate", "*", run_unsupported},
    {"upper", "", convert<unicode::to_upper>},
    {"zfill", "width", zfill},
};

}  // namespace

const Native* find_string_method(std::string_view name) { return find_native(kMethods, name); }

}  // namespace sluice::jinja
