// Targets, heads and error bodies.
#include "server/http_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::server {
namespace {

HttpRequest parsed(std::string_view target) {
  HttpRequest request;
  EXPECT_TRUE(parse_target(target, request)) << target;
  return request;
}

TEST(HttpText, ATargetIsAPathAndAQuery) {
  const HttpRequest request = parsed("/slots/0?action=save&name=a%20b+c&empty&action=erase");
  EXPECT_EQ(request.path, "/slots/0");
  const std::map<std::string, std::string> expected = {{"action", "erase"}, {"name", "a b c"}, {"empty", ""}};
  EXPECT_EQ(request.query, expected);
}

TEST(HttpText, OnlyQueriesHaveSpacesAsPlus) {
  EXPECT_EQ(parsed("/a+b%2Bc").path, "/a+b+c");
  EXPECT_EQ(percent_decoded("a+b%2Bc", true), "a b+c");
}

TEST(HttpText, ProxiesSendTheHostAlong) {
  EXPECT_EQ(parsed("HTTP://localhost:8080/v1/models?x=1").path, "/v1/models");
  EXPECT_EQ(parsed("http://localhost").path, "/");
}

TEST(HttpText, WhatIsNoPathIsRefused) {
  for (const char* target : {"", "health", "?a=b", "*", "/%", "/%4", "/%zz", "/a%00b", "/?a=%f", "localhost:80"}) {
    HttpRequest request;
    request.method = "GET";
    EXPECT_FALSE(parse_target(target, request)) << target;
  }
}

TEST(HttpText, ErrorBodiesAreJsonWhateverTheMessage) {
  const std::string message = "a \"quoted\"\\ line\n\x01, \xC3\xA9 and \xFF";
  const auto body = nlohmann::json::parse(error_body(413, message));
  EXPECT_EQ(body["error"]["code"], 413);
  EXPECT_EQ(body["error"]["message"], "a \"quoted\"\\ line\n\x01, \xC3\xA9 and \xEF\xBF\xBD");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(nlohmann::json::parse(error_body(503, ""))["error"]["type"], "unavailable_error");
  EXPECT_EQ(nlohmann::json::parse(error_body(500, ""))["error"]["type"], "server_error");
}

TEST(HttpText, NoHeaderValueCanStartAnotherHeader) {
  HttpResponse response;
  response.headers = {{"X-Request-Id", "7\r\nSet-Cookie: a=b"}};
  const std::string head = response_head(response, {}, Framing::kLength, true);
  EXPECT_EQ(head.find("\r\nSet-Cookie"), std::string::npos);
  EXPECT_NE(head.find("X-Request-Id: 7  Set-Cookie: a=b\r\n"), std::string::npos);
}

TEST(HttpText, AHeaderOfTheAnswerReplacesTheCommonOne) {
  HttpResponse response;
  response.headers = {{"server", "other"}};
  const std::string head = response_head(response, {{"Server", "sluice"}, {"X-A", "b"}}, Framing::kLength, true);
  EXPECT_EQ(head.find("sluice"), std::string::npos);
  EXPECT_NE(head.find("server: other\r\n"), std::string::npos);
  EXPECT_NE(head.find("X-A: b\r\n"), std::string::npos);
}

TEST(HttpText, ChunksSayTheirLengthInHexadecimal) {
  EXPECT_EQ(chunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_EQ(chunk(""), "");  // a chunk of no bytes would be the last
}

TEST(HttpText, DatesAreThoseOfTheStandard) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(1709164800), "Thu, 29 Feb 2024 00:00:00 GMT");
}

}  // namespace
}  // namespace sluice::server
