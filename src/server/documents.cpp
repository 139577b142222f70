// The table of endpoints, for people and for programs.
#include <fmt/format.h>

#include <iterator>

#include "server/json.h"
#include "server/routes.h"

namespace sluice::server {

namespace {

std::string limits_of(const Field& field) {
  if (field.minimum && field.maximum) return fmt::format(", {} to {}", *field.minimum, *field.maximum);
  if (field.minimum) return fmt::format(", {} or more", *field.minimum);
  return {};
}

void write_fields(std::string& out, const FieldTable& table) {
  const auto list = std::back_inserter(out);
  fmt::format_to(list, "| field | type | |\n|---|---|---|\n");
  for (const Field& field : table.fields())
    if (field.use == FieldUse::kTaken)
      fmt::format_to(list, "| `{}`{} | {}{} | {} |\n", field.name, field.required ? " (needed)" : "",
                     describe(field.types), limits_of(field), field.text);
  const auto write_rest = [&](FieldUse use, std::string_view title) {
    std::string rest;
    for (const Field& field : table.fields())
      if (field.use == use) rest += fmt::format("- `{}`: {}\n", field.name, field.text);
    if (!rest.empty()) fmt::format_to(list, "\n{}\n\n{}", title, rest);
  };
  write_rest(FieldUse::kRefused, "Refused with 400, unless the value means the same as leaving it out:");
  write_rest(FieldUse::kIgnored, "Without effect, and named in the log, as are fields that are not listed here:");
}

void write_route(std::string& out, const Route& route) {
  const auto text = std::back_inserter(out);
  fmt::format_to(text, "\n## {} {}\n\n{}.", route.method, route.paths[0], route.summary);
  if (route.paths.size() > 1)
    fmt::format_to(text, " Also: `{}`.", fmt::join(route.paths.begin() + 1, route.paths.end(), "`, `"));
  if (route.needs_key) fmt::format_to(text, " Needs a key, where there are keys.");
  fmt::format_to(text, "\n");
  if (route.fields != nullptr) {
    fmt::format_to(text, "\n");
    write_fields(out, *route.fields());
  }
  if (route.members.empty()) return;
  fmt::format_to(text, "\n| of the answer | |\n|---|---|\n");
  for (const Member& member : route.members) fmt::format_to(text, "| `{}` | {} |\n", member.name, member.text);
}

Json types_of(JsonTypes types) {
  constexpr std::pair<JsonTypes, const char*> kNames[] = {{kInteger, "integer"}, {kNumber, "number"},
                                                          {kBoolean, "boolean"}, {kString, "string"},
                                                          {kArray, "array"},     {kObject, "object"}};
  Json out = Json::array();
  for (const auto& [type, name] : kNames)
    if ((types & type) != 0) out.push_back(name);
  out.push_back("null");
  return out;
}

Json schema_of(const FieldTable& table) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : table.fields()) {
    if (field.use == FieldUse::kRefused) continue;
    Json schema = {{"description", field.text}};
    if (field.types != kAnything) schema["type"] = types_of(field.types);
    if (field.minimum) schema["minimum"] = *field.minimum;
    if (field.maximum) schema["maximum"] = *field.maximum;
    if (field.required) {
      schema["type"].erase(schema["type"].size() - 1);  // null is as good as nothing
      required.push_back(field.name);
    }
    properties[std::string(field.name)] = std::move(schema);
  }
  Json out = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) out["required"] = std::move(required);
  return out;
}

Json answers_of(const Route& route) {
  Json schema = Json::object();
  if (!route.members.empty()) {
    schema["type"] = route.endpoint == Endpoint::kCompletion ? Json{"object", "array"} : Json("object");
    for (const Member& member : route.members)
      schema["properties"][std::string(member.name)] = {{"description", member.text}};
  }
  Json content = {{std::string(route.content_type), {{"schema", std::move(schema)}}}};
  if (route.streams) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  Json out = {{"200", {{"description", "the answer"}, {"content", std::move(content)}}}};
  const Json error = {{"description", "why there is none"},
                      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  if (route.fields != nullptr) out["400"] = error;
  if (route.needs_key) out["401"] = error;
  if (route.fields != nullptr) out["413"] = error;
  out["500"] = error;
  out["501"] = error;
  out["503"] = error;
  return out;
}

Json operation_of(const Route& route, bool is_first) {
  Json out = {{"summary", route.summary}, {"responses", answers_of(route)}};
  if (!is_first) out["deprecated"] = true;
  if (route.needs_key) out["security"] = Json::array({Json{{"bearer", Json::array()}}, Json::object()});
  if (route.fields != nullptr)
    out["requestBody"] = {{"required", true},
                          {"content", {{"application/json", {{"schema", schema_of(*route.fields())}}}}}};
  if (route.endpoint == Endpoint::kSlotAction)
    out["parameters"] = Json::array(
        {Json{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "integer"}, {"minimum", 0}}}},
         Json{{"name", "action"},
              {"in", "query"},
              {"required", true},
              {"schema", {{"enum", Json::array({"save", "restore", "erase"})}}}}});
  return out;
}

}  // namespace

std::string api_document() {
  std::string out =
      "# The HTTP endpoints of `sluice serve`\n\n"
      "Made from the table in `src/server/routes.cpp` and those in `src/server/field_tables.cpp`; a test holds this "
      "page against them.\n`GET /openapi.json` gives the same to programs.\n\n"
      "A body is a JSON object of at most 64 levels; of a key that occurs twice the last value counts; `null` is as "
      "good as leaving a field out.\nAn answer that can't be given is "
      "`{\"error\": {\"code\", \"message\", \"type\", \"param\"}}` with the same code as status, where `param` is the "
      "field that is wrong.\nA prompt that is too long is `exceed_context_size_error` with `n_prompt_tokens` and "
      "`n_ctx`; a full queue, and a model that is still being loaded, are 503 with `Retry-After`.\n"
      "Every answer carries `X-Request-Id`: the request's own, if it is at most 128 letters, digits, `-`, `_` and `.`."
      "\nKeys are sent as `Authorization: Bearer KEY` or `X-Api-Key: KEY`.\n";
  for (const Route& route : routes()) write_route(out, route);
  return out;
}

std::string openapi_document() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    const std::string method = route.method == "GET" ? "get" : "post";
    for (const std::string_view path : route.paths)
      paths[std::string(path)][method] = operation_of(route, path == route.paths[0]);
  }
  const Json error = {
      {"type", "object"},
      {"required", {"error"}},
      {"properties",
       {{"error",
         {{"type", "object"},
          {"required", {"code", "message", "type"}},
          {"properties",
           {{"code", {{"type", "integer"}}}, {"message", {{"type", "string"}}}, {"type", {{"type", "string"}}}}}}}}}};
  return to_text({{"openapi", "3.1.0"},
                  {"info", {{"title", "Sluice"}, {"version", "1"}}},
                  {"paths", std::move(paths)},
                  {"components",
                   {{"schemas", {{"Error", error}}},
                    {"securitySchemes", {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}}}}}});
}

}  // namespace sluice::server
