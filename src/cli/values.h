// From the text of an option to a typed value, and back for printing defaults. Nothing here knows of options, commands
// or the environment: a problem is an Error(kUsage) that says what is wrong with the text and what would be right; the
// caller puts the option's name before it. Independent of the locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// A whole decimal number with an optional sign. Errors: anything else, or outside [minimum, maximum].
int64_t parse_integer(std::string_view text, int64_t minimum, int64_t maximum);
// The same without sign, for values beyond int64 (seeds).
uint64_t parse_unsigned(std::string_view text, uint64_t maximum);
// A decimal number such as 0.8, -1 or 1e-3. Errors: anything else, NaN included, or a magnitude above `limit`.
double parse_number(std::string_view text, double limit);
// on/off, true/false, yes/no, 1/0, enabled/disabled; the form that flags take in environment variables.
bool parse_switch(std::string_view text);
// Bytes: a number (fractions allowed) with an optional unit. B, or K M G T with an optional i, B or iB, in either case;
// every unit is a power of 1024, as everywhere in this field: 6GiB = 6GB = 6g = 6442450944.
uint64_t parse_size(std::string_view text);

// The set bits of a hexadecimal number of up to 1024 bits, with or without 0x, ascending: 0xC is {2, 3}. Errors:
// anything else, or no bit set.
std::vector<int> parse_cpu_mask(std::string_view text);

// The shortest text that parse_number() reads back as the same value.
std::string format_number(double value);
std::string format_number(float value);
// Bytes in the largest unit that divides them exactly: 6GiB, 1536MiB, 1000B.
std::string format_size(uint64_t bytes);

}  // namespace sluice::cli
