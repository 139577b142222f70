// The endpoints as a table: what each is, what it takes and gives. It answers "which handler", and yields docs/api.md
// and the OpenAPI file. What they do is app.cpp's.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace sluice::server {

enum class Endpoint : uint8_t {
  kHealth,
  kModels,
  kProps,
  kSlots,
  kMetrics,
  kOpenApi,
  kCompletion,
  kOpenAiCompletion,
  kChat,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kSlotAction,
};

struct Member {  // of an answer
  std::string_view name, text;
};

struct Route {
  Endpoint endpoint;
  std::string_view method;
  std::vector<std::string_view> paths;  // the first is the one to use; "{id}" stands for a number
  std::string_view summary;
  bool needs_key;
  bool needs_model;               // 503 while it is being loaded
  const FieldTable* (*fields)();  // of the body; null: there is none
  std::string_view content_type;  // of the answer
  std::vector<Member> members;    // of the answer, if it is an object
  bool streams = false;
};

const std::vector<Route>& routes();

struct RouteMatch {
  const Route* route = nullptr;  // null: no route has the path and the method
  std::string id;                // what stood for {id}
  std::string allow;             // the methods that the path has; empty: no route has the path
};
// HEAD is answered as GET.
RouteMatch find_route(std::string_view method, std::string_view path);

// docs/api.md
std::string api_document();
// OpenAPI 3.1, as JSON.
std::string openapi_document();

}  // namespace sluice::server
