// Python's two ways to format: 'text %s' % values and '{}'.format(values).
#pragma once

#include "chat/jinja/budget.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

struct Arguments;

// format % values, by Python's printf-style rules. Throws TemplateError of Python's kinds.
Value printf_format(const Value& format, const Value& values, Budget& budget);

// format.format(arguments): fields by position or name with attributes, indices, !r !s and format specs.
Value brace_format(const Value& format, const Arguments& arguments, Budget& budget);

}  // namespace sluice::jinja
