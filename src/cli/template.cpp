// `sluice template`: renders a chat template with given variables.
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "chat/jinja/jinja.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/jsonl.h"
#include "gguf/container.h"

namespace sluice::cli {
namespace {

struct TemplateOptions {
  std::optional<std::string> model, file, context, now;
  bool jsonl = false;

  void declare(OptionTable& table) {
    table.group("Template");
    table.option("-m, --model", "FILE", "take the chat template of this model", &model);
    table.option("--template", "FILE", "take this template", &file);
    table.option("--context", "FILE", "a JSON object of variables", &context);
    table.option("--now", "TIME", "what strftime_now says, as 2026-05-01T13:37:42", &now);
    table.flag("--jsonl", "read lines {\"template\", \"context\"}, print lines {\"text\"} or {\"error\"}", &jsonl);
  }
};

jinja::DateTime parse_time(const std::string& text) {
  jinja::DateTime t;
  char end = 0;
  const int fields = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%c", &t.year, &t.month, &t.day, &t.hour,
                                 &t.minute, &t.second, &end);
  const bool good = fields == 6 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 && t.hour >= 0 &&
                    t.hour <= 23 && t.minute >= 0 && t.minute <= 59 && t.second >= 0 && t.second <= 60;
  if (!good) fail(ErrorKind::kUsage, "--now {}: write a time such as 2026-05-01T13:37:42", text);
  return t;
}

const char* kind_name(jinja::FailureKind kind) {
  using enum jinja::FailureKind;
  switch (kind) {
    case kSyntax:
      return "syntax";
    case kUndefined:
      return "undefined";
    case kType:
      return "type";
    case kValue:
      return "value";
    case kZeroDivision:
      return "zero_division";
    case kOverflow:
      return "overflow";
    case kSecurity:
      return "security";
    case kRuntime:
      return "runtime";
    case kRaised:
      return "raised";
    case kRecursion:
      return "recursion";
    case kNoLoader:
      return "no_loader";
    case kLimit:
      return "limit";
    case kUnsupported:
      return "unsupported";
  }
  return "";
}

std::string template_source(const TemplateOptions& options) {
  if (options.file.has_value() == options.model.has_value())
    fail(ErrorKind::kUsage, "name the template with --template FILE or with -m MODEL");
  if (options.file) return read_text_file(*options.file);
  return gguf::Container::open(*options.model).metadata().get<std::string>("tokenizer.chat_template");
}

int render_template(const TemplateOptions& options) {
  jinja::Environment environment;
  if (options.now) environment.now = [now = parse_time(*options.now)] { return now; };
  if (options.jsonl) {
    for_each_json_line([&](const Json& in) -> Json {
      try {
        const auto parsed = jinja::Template::parse(in.at("template").get<std::string>());
        return {{"text", parsed.render(jinja::from_json(to_text(in.at("context"))), environment)}};
      } catch (const jinja::TemplateError& error) {
        return {{"error", {{"kind", kind_name(error.failure())}, {"message", error.detail()}, {"line", error.line()}}}};
      }
    });
    return 0;
  }
  const auto parsed = jinja::Template::parse(template_source(options));
  const std::string context = options.context ? read_text_file(*options.context) : "{}";
  fmt::print("{}", parsed.render(jinja::from_json(context), environment));
  return 0;
}

}  // namespace

Command template_command() {
  return make_command<TemplateOptions>(
      {.name = "template",
       .summary = "render a chat template",
       .usage = {"(-m MODEL | --template FILE) --context FILE.json [--now TIME]", "--jsonl"},
       .examples = {{"sluice template -m model.gguf --context chat.json", "the exact text that the model would read"}}},
      render_template);
}

}  // namespace sluice::cli
