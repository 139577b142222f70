#include "experts/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"

namespace sluice::experts {

namespace {

using Json = nlohmann::json;

constexpr uint32_t kVersion = 1;
// Far above any model; they keep products within 64 bits, and what a replay allocates small.
constexpr uint64_t kMaxLayers = 1 << 12, kMaxExperts = 1 << 16, kMaxUnits = 1 << 22, kMaxTokens = uint64_t{1} << 32;
constexpr uint64_t kMaxHeader = 1 << 16;  // bytes

// Where in a file a complaint belongs.
struct Place {
  const File& file;
  uint64_t line;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kFormat, "{}: line {}: {}", file.path(), line, fmt::format(format, std::forward<Args>(args)...));
  }
};

// One line's object, whose fields are all asked for once.
class Fields {
 public:
  Fields(const Place& place, std::string_view text) : place_(place) {
    json_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) place.refuse("no object of JSON; is this a trace made by `sluice trace`?");
  }

  bool has(const char* name) const { return json_.contains(name); }
  uint64_t number(const char* name, uint64_t least, uint64_t most) { return as_number(name, field(name), least, most); }
  std::string text(const char* name) {
    const Json& value = field(name);
    if (!value.is_string()) place_.refuse("{}: is no text", name);
    return value.get<std::string>();
  }
  std::vector<uint64_t> numbers(const char* name, uint64_t count, uint64_t least, uint64_t most) {
    const Json& value = field(name);
    if (!value.is_array() || value.size() != count) place_.refuse("{}: is no list of {} numbers", name, count);
    std::vector<uint64_t> out;
    for (const Json& entry : value) out.push_back(as_number(name, entry, least, most));
    return out;
  }
  // To be called after the last field.
  void end() const {
    if (asked_ == json_.size()) return;
    for (const auto& [name, value] : json_.items())
      if (!std::ranges::count(names_, name)) place_.refuse("{}: no such field is known", name);
  }

 private:
  const Json& field(const char* name) {
    const auto at = json_.find(name);
    if (at == json_.end()) place_.refuse("{}: is missing", name);
    ++asked_;
    names_.push_back(name);
    return *at;
  }
  uint64_t as_number(const char* name, const Json& value, uint64_t least, uint64_t most) const {
    if (!value.is_number_unsigned()) place_.refuse("{}: {} is no whole number", name, value.dump());
    const uint64_t number = value.get<uint64_t>();
    if (number < least || number > most) place_.refuse("{}: {} is not from {} to {}", name, number, least, most);
    return number;
  }

  const Place& place_;
  Json json_;
  size_t asked_ = 0;
  std::vector<std::string> names_;
};

struct Header {
  Trace trace;  // without experts
  uint64_t tokens = 0;
  std::string form;

  uint64_t n_numbers() const {
    const uint64_t a_token = uint64_t{trace.n_layers} * trace.top_k;
    return checked_mul(tokens, a_token, "numbers of a trace");
  }
};

Header read_header(const File& file, std::string_view text) {
  const Place place{file, 1};
  Fields fields(place, text);
  fields.number("sluice_trace", kVersion, kVersion);
  Header header;
  header.trace.architecture = fields.text("architecture");
  header.trace.n_layers = static_cast<uint32_t>(fields.number("n_layers", 1, kMaxLayers));
  header.trace.n_experts =
      static_cast<uint32_t>(fields.number("n_experts", 1, std::min(kMaxExperts, kMaxUnits / header.trace.n_layers)));
  header.trace.top_k = static_cast<uint32_t>(fields.number("experts_used", 1, header.trace.n_experts));
  header.tokens = fields.number("tokens", 0, kMaxTokens);
  if (fields.has("expert_bytes"))
    header.trace.expert_bytes = fields.numbers("expert_bytes", header.trace.n_layers, 1, uint64_t{1} << 40);
  header.form = fields.text("form");
  fields.end();
  if (header.form != "lines" && header.form != "u8" && header.form != "u16")
    place.refuse("form: \"{}\" is none of lines, u8, u16", header.form);
  if (header.form == "u8" && header.trace.n_experts > 256)
    place.refuse("form: u8 cannot number {} experts", header.trace.n_experts);
  return header;
}

void check_distinct(const Place& place, std::span<const uint16_t> experts) {
  for (size_t i = 0; i < experts.size(); ++i)
    if (std::ranges::count(experts.first(i), experts[i])) place.refuse("experts: {} is there twice", experts[i]);
}

void read_lines(const File& file, const Header& header, std::string_view text, Trace& trace) {
  Place place{file, 2};
  for (uint64_t token = 0; token < header.tokens; ++token) {
    for (uint32_t layer = 0; layer < trace.n_layers; ++layer, ++place.line) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos)
        place.refuse("ends before layer {} of token {} of {}; the file is cut short", layer, token, header.tokens);
      Fields fields(place, text.substr(0, end));
      fields.number("pos", token, token);
      fields.number("layer", layer, layer);
      for (const uint64_t expert : fields.numbers("experts", trace.top_k, 0, trace.n_experts - 1))
        trace.experts.push_back(static_cast<uint16_t>(expert));
      fields.end();
      check_distinct(place, std::span(trace.experts).last(trace.top_k));
      text.remove_prefix(end + 1);
    }
  }
  if (!text.empty()) place.refuse("goes on after the last of {} tokens", header.tokens);
}

void read_binary(const File& file, const Header& header, std::string_view bytes, Trace& trace) {
  const Place place{file, 2};
  const uint64_t width = header.form == "u8" ? 1 : 2, numbers = header.n_numbers();
  if (bytes.size() != checked_mul(numbers, width, "bytes of a trace"))
    place.refuse("has {} bytes of experts; {} tokens of {} layers of {} take {}", bytes.size(), header.tokens,
                 trace.n_layers, trace.top_k, numbers * width);
  trace.experts.reserve(numbers);
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  for (size_t i = 0; i < numbers; ++i) {
    const auto expert = static_cast<uint16_t>(width == 1 ? byte(i) : byte(2 * i) | byte(2 * i + 1) << 8);
    if (expert >= trace.n_experts)
      place.refuse("experts: {} of token {} is not from 0 to {}", expert, i / (trace.n_layers * trace.top_k),
                   trace.n_experts - 1);
    trace.experts.push_back(expert);
    if ((i + 1) % trace.top_k == 0) check_distinct(place, std::span(trace.experts).last(trace.top_k));
  }
}

std::string header_line(const Trace& trace, std::string_view form) {
  nlohmann::ordered_json json = {{"sluice_trace", kVersion},    {"architecture", trace.architecture},
                                 {"n_layers", trace.n_layers},  {"n_experts", trace.n_experts},
                                 {"experts_used", trace.top_k}, {"tokens", trace.tokens()}};
  if (!trace.expert_bytes.empty()) json["expert_bytes"] = trace.expert_bytes;
  json["form"] = form;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Trace Trace::part(size_t first, size_t end) const {
  Trace out{architecture, n_layers, n_experts, top_k, expert_bytes, {}};
  const auto row = static_cast<ptrdiff_t>(size_t{n_layers} * top_k);
  out.experts.assign(experts.begin() + static_cast<ptrdiff_t>(first) * row,
                     experts.begin() + static_cast<ptrdiff_t>(end) * row);
  return out;
}

Trace read_trace(const File& file) {
  std::string content(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(content)));
  const std::string_view text = content;
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end > kMaxHeader)
    fail(ErrorKind::kFormat, "{}: does not begin with a line of JSON; is this a trace made by `sluice trace`?",
         file.path());
  const Header header = read_header(file, text.substr(0, end));
  Trace trace = header.trace;
  if (header.form == "lines")
    read_lines(file, header, text.substr(end + 1), trace);
  else
    read_binary(file, header, text.substr(end + 1), trace);
  return trace;
}

void write_trace(AtomicFileWriter& out, const Trace& trace, TraceForm form) {
  const bool narrow = trace.n_experts <= 256;
  out.write(header_line(trace, form == TraceForm::kLines ? "lines" : narrow ? "u8" : "u16"));
  std::string piece;
  for (size_t token = 0; token < trace.tokens(); ++token) {
    piece.clear();
    for (uint32_t layer = 0; layer < trace.n_layers; ++layer) {
      const auto experts = trace.at(token, layer);
      if (form == TraceForm::kLines) {
        piece += fmt::format("{{\"pos\":{},\"layer\":{},\"experts\":[{}", token, layer, experts[0]);
        for (const uint16_t expert : experts.subspan(1)) piece += fmt::format(",{}", expert);
        piece += "]}\n";
        continue;
      }
      for (const uint16_t expert : experts) {
        piece += static_cast<char>(expert & 0xFF);
        if (!narrow) piece += static_cast<char>(expert >> 8);
      }
    }
    out.write(piece);
  }
  out.commit();
}

}  // namespace sluice::experts
