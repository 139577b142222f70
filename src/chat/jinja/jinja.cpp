#include "chat/jinja/jinja.h"

#include "chat/jinja/ast.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace sluice::jinja {
namespace {

std::string_view kind_name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kSyntax:
      return "syntax error";
    case FailureKind::kUndefined:
      return "undefined value";
    case FailureKind::kType:
      return "type error";
    case FailureKind::kValue:
      return "value error";
    case FailureKind::kZeroDivision:
      return "division by zero";
    case FailureKind::kOverflow:
      return "overflow";
    case FailureKind::kSecurity:
      return "forbidden by the sandbox";
    case FailureKind::kRuntime:
      return "runtime error";
    case FailureKind::kRaised:
      return "raised by the template";
    case FailureKind::kRecursion:
      return "recursion";
    case FailureKind::kNoLoader:
      return "no loader";
    case FailureKind::kLimit:
      return "limit reached";
    case FailureKind::kUnsupported:
      return "unsupported";
  }
  return "error";
}

ErrorKind error_kind(FailureKind kind) {
  switch (kind) {
    case FailureKind::kLimit:
    case FailureKind::kRecursion:
      return ErrorKind::kLimit;
    case FailureKind::kUnsupported:
    case FailureKind::kNoLoader:
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kFormat;
  }
}

std::string describe(FailureKind kind, const std::string& detail, int line) {
  if (line == 0) return fmt::format("chat template: {}: {}", kind_name(kind), detail);
  return fmt::format("chat template, line {}: {}: {}", line, kind_name(kind), detail);
}

}  // namespace

TemplateError::TemplateError(FailureKind kind, std::string detail, int line)
    : Error(error_kind(kind), describe(kind, detail, line)), failure_(kind), detail_(std::move(detail)), line_(line) {}

Template Template::parse(std::string_view source, const Options& options) {
  auto program = std::make_shared<Program>(parse_program(source, options));
  check_program(*program);
  return Template(std::move(program));
}

std::string Template::render(const Value& context, const Environment& environment) const {
  return Interpreter(*program_, environment, context).render();
}

}  // namespace sluice::jinja
