// From tokens to a Program: jinja2's grammar by recursive descent.
#pragma once

#include <string_view>

#include "chat/jinja/ast.h"
#include "chat/jinja/jinja.h"

namespace sluice::jinja {

// Throws TemplateError(kSyntax) with the line of the mistake; kLimit past kMaxNesting.
Program parse_program(std::string_view source, const Options& options);

// What jinja2 finds only when it generates code: unknown filters and tests where they are certain to run, break and
// continue outside a loop, blocks that Sluice doesn't support. Throws TemplateError(kSyntax).
void check_program(const Program& program);

}  // namespace sluice::jinja
