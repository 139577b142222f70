// Trace files: what is written comes back, and what is not a trace is refused with the place.
#include "experts/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace sluice::experts {
namespace {

using testing::HasSubstr;

std::unique_ptr<File> file_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return memory_file("some.trace", {bytes.begin(), bytes.end()});
}

Trace example(uint32_t n_experts) {
  Trace trace{"qwen35moe", 2, n_experts, 3, {100, 200}, {}};
  for (uint32_t token = 0; token < 5; ++token)
    for (uint32_t i = 0; i < 6; ++i)
      trace.experts.push_back(static_cast<uint16_t>((token * 7 + i * (n_experts / 6)) % n_experts));
  return trace;
}

std::string refusal(std::string_view text) {
  try {
    read_trace(*file_of(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    return error.what();
  }
  ADD_FAILURE() << "was read: " << text;
  return "";
}

constexpr const char* kHeader =
    R"({"sluice_trace":1,"architecture":"a","n_layers":2,"n_experts":4,"experts_used":2,"tokens":1,"form":"lines"})"
    "\n";
constexpr const char* kFirst = "{\"pos\":0,\"layer\":0,\"experts\":[3,1]}\n";
constexpr const char* kSecond = "{\"pos\":0,\"layer\":1,\"experts\":[0,2]}\n";

TEST(Trace, ComesBackAsItWasWritten) {
  const std::string path = testing::TempDir() + "written.trace";
  for (const uint32_t n_experts : {7u, 256u, 257u, 65536u}) {
    for (const TraceForm form : {TraceForm::kLines, TraceForm::kBinary}) {
      const Trace trace = example(n_experts);
      AtomicFileWriter out(path);
      write_trace(out, trace, form);
      const Trace back = read_trace(*open_file(path));
      EXPECT_EQ(back.architecture, trace.architecture);
      EXPECT_EQ(back.n_layers, 2u);
      EXPECT_EQ(back.n_experts, n_experts);
      EXPECT_EQ(back.top_k, 3u);
      EXPECT_EQ(back.expert_bytes, trace.expert_bytes);
      EXPECT_EQ(back.experts, trace.experts);
    }
  }
  std::filesystem::remove(path);
}

TEST(Trace, ReadsTheLinesOfItsDescription) {
  const Trace trace = read_trace(*file_of(std::string(kHeader) + kFirst + kSecond));
  EXPECT_EQ(trace.tokens(), 1u);
  EXPECT_EQ(trace.experts, (std::vector<uint16_t>{3, 1, 0, 2}));
  EXPECT_TRUE(trace.expert_bytes.empty());
}

TEST(Trace, PartHasTheTokensOfItsRange) {
  const Trace trace = example(60), part = trace.part(1, 3);
  EXPECT_EQ(part.tokens(), 2u);
  for (size_t token = 0; token < 2; ++token)
    for (uint32_t layer = 0; layer < 2; ++layer)
      EXPECT_THAT(part.at(token, layer), testing::ElementsAreArray(trace.at(token + 1, layer)));
  EXPECT_EQ(part.expert_bytes, trace.expert_bytes);
}

TEST(Trace, RefusesHeadersWithTheField) {
  const auto with = [](const char* from, const char* to) {
    std::string header = kHeader;
    const size_t at = header.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return header.replace(at, std::strlen(from), to) + kFirst + kSecond;
  };
  EXPECT_THAT(refusal(""), HasSubstr("some.trace"));
  EXPECT_THAT(refusal("GGUF\3\n"), HasSubstr("some.trace: line 1: no object"));
  EXPECT_THAT(refusal("[1]\n"), HasSubstr("no object"));
  EXPECT_THAT(refusal(with("trace\":1", "trace\":2")), HasSubstr("line 1: sluice_trace: 2"));
  EXPECT_THAT(refusal(with("\"architecture\":\"a\",", "")), HasSubstr("line 1: architecture: is missing"));
  EXPECT_THAT(refusal(with("\"a\"", "1")), HasSubstr("architecture: is no text"));
  EXPECT_THAT(refusal(with("layers\":2", "layers\":0")), HasSubstr("n_layers: 0 is not from 1"));
  EXPECT_THAT(refusal(with("layers\":2", "layers\":-2")), HasSubstr("n_layers: -2"));
  EXPECT_THAT(refusal(with("layers\":2", "layers\":2.5")), HasSubstr("n_layers: 2.5"));
  EXPECT_THAT(refusal(with("experts\":4", "experts\":65537")), HasSubstr("n_experts: 65537"));
  EXPECT_THAT(refusal(with("layers\":2,\"n_experts\":4", "layers\":4096,\"n_experts\":2000")),
              HasSubstr("n_experts: 2000"));
  EXPECT_THAT(refusal(with("used\":2", "used\":5")), HasSubstr("experts_used: 5 is not from 1 to 4"));
  EXPECT_THAT(refusal(with("tokens\":1", "tokens\":18446744073709551615")), HasSubstr("tokens: "));
  EXPECT_THAT(refusal(with("lines", "yaml")), HasSubstr("form: \"yaml\""));
  EXPECT_THAT(refusal(with("\"tokens\"", "\"more\":1,\"tokens\"")), HasSubstr("more: no such field"));
  EXPECT_THAT(refusal(with("\"tokens\"", "\"expert_bytes\":[1],\"tokens\"")),
              HasSubstr("expert_bytes: is no list of 2"));
  EXPECT_THAT(refusal(with("\"tokens\"", "\"expert_bytes\":[1,0],\"tokens\"")), HasSubstr("expert_bytes: 0"));
}

TEST(Trace, RefusesLinesWithTheirNumberAndField) {
  const std::string start = std::string(kHeader) + kFirst;
  EXPECT_THAT(refusal(kHeader), HasSubstr("line 2: ends before layer 0 of token 0"));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[0,2]}"), HasSubstr("line 3: ends before"));
  EXPECT_THAT(refusal(start + kFirst), HasSubstr("line 3: layer: 0 is not from 1 to 1"));
  EXPECT_THAT(refusal(start + "{\"pos\":1,\"layer\":1,\"experts\":[0,2]}\n"), HasSubstr("line 3: pos: 1"));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[0]}\n"),
              HasSubstr("line 3: experts: is no list of 2"));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[0,4]}\n"),
              HasSubstr("experts: 4 is not from 0 to 3"));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[2,2]}\n"), HasSubstr("experts: 2 is there twice"));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[0,\"2\"]}\n"), HasSubstr("experts: \"2\""));
  EXPECT_THAT(refusal(start + "{\"pos\":0,\"layer\":1,\"experts\":[0,2],\"x\":0}\n"), HasSubstr("x: no such field"));
  EXPECT_THAT(refusal(start + kSecond + kFirst), HasSubstr("line 4: goes on"));
}

TEST(Trace, RefusesBytesThatAreNotTheExperts) {
  std::string header = kHeader;
  header.replace(header.find("lines"), 5, "u8");
  EXPECT_EQ(read_trace(*file_of(header + std::string("\3\1\0\2", 4))).tokens(), 1u);
  EXPECT_THAT(refusal(header + "\3\1\1"), HasSubstr("has 3 bytes"));
  EXPECT_THAT(refusal(header + std::string("\3\1\0\2\1", 5)), HasSubstr("has 5 bytes"));
  EXPECT_THAT(refusal(header + std::string("\3\1\0\4", 4)), HasSubstr("experts: 4 of token 0"));
  EXPECT_THAT(refusal(header + std::string("\3\3\0\1", 4)), HasSubstr("experts: 3 is there twice"));
  header.replace(header.find("experts\":4"), 10, "experts\":300");
  EXPECT_THAT(refusal(header + std::string("\3\1\0\2", 4)), HasSubstr("u8 cannot number 300"));
}

}  // namespace
}  // namespace sluice::experts
