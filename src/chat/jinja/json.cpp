// JSON in (from_json) and out, as Python's json module writes it.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {
namespace {

// Builds Values from nlohmann's events; the parser itself doesn't recurse.
class Builder {
 public:
  bool null() { return put(Value()); }
  bool boolean(bool value) { return put(Value(value)); }
  bool number_integer(int64_t value) { return put(Value(value)); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) fail_integer(std::to_string(value));
    return put(Value(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) fail_integer(text);
    return put(Value(value));
  }
  bool string(std::string& text) { return put(Value(std::move(text))); }
  bool binary(std::vector<uint8_t>&) { return false; }
  bool start_object(size_t) { return open(true); }
  bool key(std::string& text) {
    levels_.back().key = std::move(text);
    return true;
  }
  bool end_object() {
    Value value = Value::dict(std::move(levels_.back().dict));
    return close(std::move(value));
  }
  bool start_array(size_t) { return open(false); }
  bool end_array() {
    Value value = Value::list(std::move(levels_.back().list));
    return close(std::move(value));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    // The exception's own words begin with an identifier in brackets and the place.
    const std::string message = error.what();
    const size_t words = message.find(": ");
    fail(ErrorKind::kFormat, "JSON, byte {}: {}", position,
         words == std::string::npos ? message : message.substr(words + 2));
  }

  Value result;

 private:
  struct Level {
    bool is_object;
    Dict dict;
    std::vector<Value> list;
    std::string key;
  };

  [[noreturn]] static void fail_integer(const std::string& text) {
    fail(ErrorKind::kUnsupported, "JSON: the integer {} does not fit in 64 bits", text);
  }

  bool open(bool is_object) {
    if (levels_.size() >= kMaxValueDepth) {
      fail(ErrorKind::kLimit, "JSON: nested more than {} levels deep", kMaxValueDepth);
    }
    levels_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool close(Value value) {
    levels_.pop_back();
    return put(std::move(value));
  }
  bool put(Value value) {
    if (levels_.empty()) {
      result = std::move(value);
    } else if (levels_.back().is_object) {
      levels_.back().dict.set(Value(std::move(levels_.back().key)), std::move(value));
    } else {
      levels_.back().list.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Level> levels_;
};

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value) {
    budget_.step();
    switch (value.type()) {
      case Type::kNone:
        out_ += "null";
        return;
      case Type::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return;
      case Type::kInt:
        out_ += std::to_string(value.as_int());
        return;
      case Type::kFloat:
        out_ += number(value.as_double());
        return;
      case Type::kString:
        return write_string(value.text());
      case Type::kList:
      case Type::kTuple:
        return write_list(value.items());
      case Type::kDict:
        return write_dict(value.as_dict());
      default:
        fail_type(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void write_string(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const auto byte = static_cast<unsigned char>(text[0]);
      if (byte >= 0x80 && style_.ensure_ascii) {
        const auto decoded = utf8::decode(text);
        write_escaped(decoded.code_point);
        text.remove_prefix(decoded.length);
        continue;
      }
      write_byte(text[0]);
      text.remove_prefix(1);
    }
    out_ += '"';
    budget_.check_output(out_.size());
  }

  void write_byte(char c) {
    switch (c) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\b':
        out_ += "\\b";
        return;
      case '\f':
        out_ += "\\f";
        return;
      default:
        break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || (byte == 0x7F && style_.ensure_ascii)) {
      out_ += fmt::format("\\u{:04x}", byte);
    } else {
      out_ += c;
    }
  }

  void write_escaped(char32_t point) {
    auto c = static_cast<uint32_t>(point);
    if (c >= 0x10000) {
      c -= 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
    } else {
      out_ += fmt::format("\\u{:04x}", c);
    }
  }

  void break_line() {
    if (!style_.has_indent) return;
    budget_.make_text(1 + style_.indent.size(), depth_ + 1);
    out_ += '\n';
    for (uint64_t i = 0; i < depth_; ++i) out_ += style_.indent;
    budget_.check_output(out_.size());
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++depth_;
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      break_line();
      write(item);
    }
    --depth_;
    break_line();
    out_ += ']';
  }

  void write_dict(const Dict& dict) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
        return compare(Comparison::kLess, a->first, b->first, budget_);
      });
    }
    out_ += '{';
    ++depth_;
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      break_line();
      write_string(key_text(entry->first));
      out_ += style_.key_separator;
      write(entry->second);
    }
    --depth_;
    break_line();
    out_ += '}';
  }

  static std::string key_text(const Value& key) {
    switch (key.type()) {
      case Type::kString:
        return key.text();
      case Type::kNone:
        return "null";
      case Type::kBool:
        return key.as_bool() ? "true" : "false";
      case Type::kInt:
        return std::to_string(key.as_int());
      case Type::kFloat:
        return number(key.as_double());
      default:
        fail_type(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  uint64_t depth_ = 0;
};

}  // namespace

Value from_json(std::string_view text) {
  // The parser takes a zero byte for the end of the text, and would leave out what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail(ErrorKind::kFormat, "JSON, byte {}: a zero byte", zero);
  }
  Builder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.result);
}

std::string dump_json(const Value& value, const JsonStyle& style, Budget& budget) {
  budget.make_text(extent(value).weight);
  Writer writer(style, budget);
  writer.write(value);
  return writer.take();
}

std::string to_json(const Value& value) {
  Budget budget{Limits{}};
  return dump_json(value, {}, budget);
}

}  // namespace sluice::jinja
