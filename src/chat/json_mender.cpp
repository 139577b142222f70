#include "chat/json_mender.h"

#include <fmt/core.h>

#include "base/error.h"
#include "chat/jinja/jinja.h"

namespace sluice {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool ends_word(char c) { return is_space(c) || std::string_view(",:[]{}\"").find(c) != std::string_view::npos; }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// A word as a JSON value. Numbers are those that can be read back.
std::string word_value(const std::string& word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  try {
    jinja::from_json(word);
    return word;
  } catch (const Error&) {
    return json_quoted(word);
  }
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out += '"';
}

size_t JsonMender::feed(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (done() || broken_) return i;
    if (!take(text[i], out)) {
      broken_ = true;
      return i;
    }
  }
  return text.size();
}

bool JsonMender::take(char c, std::string& out) {
  if (inside_ == Inside::kString) {
    take_in_string(c, out);
    return true;
  }
  if (inside_ == Inside::kWord) {
    if (!ends_word(c)) {
      word_ += c;
      return true;
    }
    end_word(out);
  }
  return is_space(c) || take_structure(c, out);
}

bool JsonMender::take_structure(char c, std::string& out) {
  switch (expect_) {
    case Expect::kObject:
      return c == '{' && begin_value(c, out);
    case Expect::kKey:
      if (c == '}') return close_bracket(c, out);
      is_key_ = true;
      return c != '{' && c != '[' && begin_value(c, out);
    case Expect::kColon:
      if (c != ':') return false;
      out += ": ";
      expect_ = Expect::kMember;
      return true;
    case Expect::kItem:
      if (c == ']') return close_bracket(c, out);
      [[fallthrough]];
    case Expect::kMember:
      is_key_ = false;
      return begin_value(c, out);
    case Expect::kNext:
      if (c != ',') return close_bracket(c, out);
      comma_ = true;
      expect_ = closers_.back() == '}' ? Expect::kKey : Expect::kItem;
      return true;
    case Expect::kNothing:
      break;
  }
  return false;
}

bool JsonMender::begin_value(char c, std::string& out) {
  if (c == '{' || c == '[') {
    if (closers_.size() == kMaxDepth) return false;
    separate(out);
    out += c;
    closers_ += c == '{' ? '}' : ']';
    expect_ = c == '{' ? Expect::kKey : Expect::kItem;
    return true;
  }
  if (c != '"' && ends_word(c)) return false;
  separate(out);
  if (c == '"') {
    out += c;
    inside_ = Inside::kString;
  } else {
    word_ = c;
    inside_ = Inside::kWord;
  }
  return true;
}

bool JsonMender::close_bracket(char c, std::string& out) {
  if (c != closers_.back()) return false;
  out += c;
  closers_.pop_back();
  comma_ = false;
  expect_ = closers_.empty() ? Expect::kNothing : Expect::kNext;
  return true;
}

void JsonMender::separate(std::string& out) {
  if (comma_) out += ", ";
  comma_ = false;
}

void JsonMender::end_word(std::string& out) {
  out += is_key_ ? json_quoted(word_) : word_value(word_);
  word_.clear();
  inside_ = Inside::kNone;
  end_scalar();
}

void JsonMender::take_in_string(char c, std::string& out) {
  if (!escape_.empty()) return take_in_escape(c, out);
  if (c == '\\') {
    escape_ = c;
    return;
  }
  end_half_pair(out);
  if (c != '"') return append_json_escaped(out, {&c, 1});
  out += c;
  inside_ = Inside::kNone;
  end_scalar();
}

void JsonMender::take_in_escape(char c, std::string& out) {
  const bool begins = escape_.size() == 1;
  if (begins ? c == 'u' : is_hex(c)) {
    escape_ += c;
    if (escape_.size() == 6) end_code_unit(out);
    return;
  }
  end_half_pair(out);
  if (begins && std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    out += escape_ + c;
    escape_.clear();
    return;
  }
  if (!begins || c != '\'') out += '\\' + escape_;  // \' is Python's, and means '
  escape_.clear();
  take_in_string(c, out);
}

// An escape by its number is complete.
void JsonMender::end_code_unit(std::string& out) {
  const unsigned long unit = std::stoul(escape_.substr(2), nullptr, 16);
  const bool first = unit >= 0xD800 && unit < 0xDC00, second = unit >= 0xDC00 && unit < 0xE000;
  if (second && !half_.empty()) {
    out += half_ + escape_;
    half_.clear();
  } else {
    end_half_pair(out);
    if (first) {
      half_ = escape_;
    } else {
      out += second ? "\\ufffd" : escape_;
    }
  }
  escape_.clear();
}

void JsonMender::end_half_pair(std::string& out) {
  if (!half_.empty()) out += "\\ufffd";
  half_.clear();
}

void JsonMender::close(std::string& out) {
  if (inside_ == Inside::kWord) end_word(out);
  if (inside_ == Inside::kString) {
    end_half_pair(out);
    if (!escape_.empty()) out += '\\' + escape_;
    out += '"';
    inside_ = Inside::kNone;
    end_scalar();
  }
  if (expect_ == Expect::kObject) out += "{}";
  if (expect_ == Expect::kColon) out += ": null";
  if (expect_ == Expect::kMember) out += "null";
  for (; !closers_.empty(); closers_.pop_back()) out += closers_.back();
  expect_ = Expect::kNothing;
}

}  // namespace sluice
