// What the standard streams are connected to: terminal or pipe, its width, and the few styles that help reading.
#pragma once

#include <cstdio>
#include <string_view>

namespace sluice::cli {

bool is_terminal(std::FILE* stream);

// Columns of the terminal behind `stream`; 80 where there is none. Never under 40, so that wrapping stays possible.
int terminal_width(std::FILE* stream);

// Escape sequences to print before and after a piece of text. All are empty when the stream is no terminal, TERM is
// "dumb" or NO_COLOR is set to anything (no-color.org), so that they can be printed always.
struct Style {
  std::string_view bold, dim, green, red, reset;
};
Style style_for(std::FILE* stream);

}  // namespace sluice::cli
