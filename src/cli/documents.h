// The texts that are made from commands and their option tables: --help, the man page and shell completions. Whatever
// they say of an option comes from its one declaration (options.h).
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace sluice::cli {

// `sluice NAME --help`, wrapped at `width` columns.
std::string command_help(const CommandText& text, const OptionTable& table, int width);
// `sluice --help`: the commands with their summaries.
std::string overview(std::span<const Command> commands, int width);
// sluice.1 in the man(7) macros, all commands in one page.
std::string man_page(std::span<const Command> commands);

enum class Shell { kBash, kZsh, kFish };
// A script that teaches the shell the commands, their options, and which options take files or one of a few words.
std::string completion_script(Shell shell, std::span<const Command> commands);

}  // namespace sluice::cli
