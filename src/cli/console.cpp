#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sluice::cli {

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<int>(size.ws_col, 40);
}

Style style_for(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool refused = no_color && *no_color;
  const bool dumb = !terminal || std::string_view(terminal) == "dumb";
  if (refused || dumb || !is_terminal(stream)) return {};
  return {"\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[0m"};
}

}  // namespace sluice::cli
