#include "chat/tokenizer_vectors.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "chat/vocabulary_metadata.h"
#include "gguf/reader.h"
#include "support/reference.h"

namespace sluice::test {

namespace {

using nlohmann::json;

json read_json(const std::string& path) { return json::parse(read_text_file(path)); }

std::string from_base64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;  // padding
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

EncodeCase encode_case(const json& j) {
  EncodeCase c;
  c.name = j.at("name");
  c.text = j.contains("text") ? j.at("text").get<std::string>() : from_base64(j.at("bytes_b64"));
  c.ids = j.at("ids").get<std::vector<int32_t>>();
  c.ids_no_special = j.value("ids_no_special", c.ids);
  if (j.contains("decoded")) c.decoded = j.at("decoded");
  c.lost = j.value("lost", false);
  return c;
}

DecodeCase decode_case(const json& j) {
  DecodeCase c;
  c.name = j.at("name");
  c.ids = j.at("ids").get<std::vector<int32_t>>();
  c.streamed = j.contains("stream");
  if (!c.streamed) {
    c.bytes = c.bytes_without_control = j.at("decoded");
    return c;
  }
  c.bytes = from_base64(j.at("bytes_b64"));
  c.bytes_without_control =
      j.contains("bytes_without_control_b64") ? from_base64(j.at("bytes_without_control_b64")) : c.bytes;
  c.stream = j.at("stream").get<std::vector<std::string>>();
  c.stream_end = j.value("stream_end", std::string());
  return c;
}

}  // namespace

chat::VocabularyData read_gguf_vocabulary(const std::string& path) {
  return chat::read_vocabulary(gguf::read_part(open_file(path)).metadata);
}

std::string selection_path(const std::string& name) { return test_data_dir() + "/tokenizers/" + name + ".json"; }

chat::VocabularyData selected_vocabulary(const std::string& name) {
  const json j = read_json(selection_path(name)).at("vocabulary");
  chat::VocabularyData data;
  data.model = j.at("model");
  data.pre = j.at("pre");
  const size_t size = j.at("size");
  data.tokens.resize(size);
  data.types.assign(size, chat::TokenType::kUnused);
  for (const auto& token : j.at("tokens")) {  // [id, text], [id, text, type] or [id, text, type, score]
    const size_t id = token.at(0);
    data.tokens.at(id) = token.at(1);
    data.types.at(id) = static_cast<chat::TokenType>(token.size() > 2 ? token.at(2).get<int>() : 1);
    if (token.size() > 3) {
      data.scores.resize(size);
      data.scores.at(id) = token.at(3);
    }
  }
  data.merges = j.at("merges").get<std::vector<std::string>>();
  const auto id = [&](const char* key) -> std::optional<uint32_t> {
    if (!j.contains(key)) return std::nullopt;
    return j.at(key).get<uint32_t>();
  };
  data.bos = id("bos"), data.eos = id("eos"), data.unknown = id("unknown");
  return data;
}

TokenizerVectors read_vectors(const std::string& path) {
  const json j = read_json(path);
  TokenizerVectors out;
  for (const auto& c : j.at("encode")) out.encode.push_back(encode_case(c));
  for (const auto& c : j.at("invalid_utf8")) out.invalid.push_back(encode_case(c));
  for (const auto& c : j.at("decode")) out.decode.push_back(decode_case(c));
  return out;
}

std::vector<SweepBlock> read_sweep(const std::string& path) {
  std::vector<SweepBlock> out;
  const json j = read_json(path);
  for (const auto& block : j.at("blocks")) out.push_back({block.at("first"), block.at("sha256")});
  return out;
}

std::string sha256(const std::string& bytes) {
  // The round constants are the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
  static constexpr uint32_t kRound[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded = bytes + '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(uint64_t{bytes.size()} * 8 >> shift);
  for (size_t block = 0; block < padded.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | static_cast<uint8_t>(padded[block + 4 * i + k]);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> sum = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sum[i];
  }
  std::string hex;
  for (const uint32_t word : state) hex += fmt::format("{:08x}", word);
  return hex;
}

}  // namespace sluice::test
