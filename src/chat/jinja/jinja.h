// Jinja as chat templates use it: what transformers' apply_chat_template makes of a template, byte for byte. The
// language is that of jinja2 3.1 in its immutable sandbox with loop controls, tojson without HTML escapes,
// raise_exception, strftime_now and the generation tag. Not here: what a chat request means (chat/template.h).
//
// Left out, always with a clear error: template inheritance and loaders, HTML autoescape, integers beyond 64 bits,
// and Python library corners such as str.encode or the urlize filter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

enum class FailureKind {
  kSyntax,  // found by parse(): unknown filters, tests and tags too, where they are certain to run
  kUndefined,
  kType,
  kValue,
  kZeroDivision,
  kOverflow,     // range over 100,000
  kSecurity,     // the sandbox: underscore attributes, methods that change a list or dict
  kRuntime,      // among others unknown filters in branches
  kRaised,       // raise_exception
  kRecursion,    // calls or values nested too deeply
  kNoLoader,     // include, import, extends
  kLimit,        // a limit of Limits or of the parser
  kUnsupported,  // jinja2 could, Sluice doesn't
};

// What went wrong in a template. what() names the kind and the line; detail() is the bare message, for kRaised exactly
// what the template gave.
class TemplateError : public Error {
 public:
  TemplateError(FailureKind kind, std::string detail, int line = 0);
  FailureKind failure() const { return failure_; }
  const std::string& detail() const { return detail_; }
  // 1-based line in the template; 0 when unknown.
  int line() const { return line_; }

 private:
  FailureKind failure_;
  std::string detail_;
  int line_;
};

// Bounds on one render, so that a hostile template ends with TemplateError(kLimit or kRecursion) and not with the
// process. The defaults are far above what the longest conversation needs.
struct Limits {
  uint64_t max_steps = 20'000'000;                 // nodes evaluated, items walked
  uint64_t max_bytes_made = uint64_t{512} << 20;   // strings and lists made, in total
  uint64_t max_output_bytes = uint64_t{64} << 20;  // length of the result and of any single string
  uint32_t max_depth = 1000;                       // nodes inside nodes, through macro calls: about 1 KiB of stack each
};

struct Options {
  bool trim_blocks = true;
  bool lstrip_blocks = true;
  bool keep_trailing_newline = false;
};

// A local date and time, as strftime_now prints it.
struct DateTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};
DateTime system_local_time();

struct Environment {
  Limits limits;
  std::function<DateTime()> now = system_local_time;
};

struct Program;

// A parsed template. Immutable: may be copied and rendered from any number of threads.
class Template {
 public:
  // Throws TemplateError(kSyntax or kLimit) with the line.
  static Template parse(std::string_view source, const Options& options = {});
  // `context` is a dict of variables. Throws TemplateError; no text is returned then.
  std::string render(const Value& context, const Environment& environment = {}) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

// A JSON text as a value, order of keys kept, a repeated key overwriting the earlier one. Throws Error(kFormat) with
// the byte offset; Error(kUnsupported) for integers beyond 64 bits.
Value from_json(std::string_view text);

// JSON as Python's json.dumps(ensure_ascii=False) writes it. Throws TemplateError(kType) for what JSON can't hold.
std::string to_json(const Value& value);

}  // namespace sluice::jinja
