#include "cli/common_options.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace sluice::cli {

void ModelOptions::declare(OptionTable& table, bool required) {
  table.group("Model");
  table.option("-m, --model", "FILE", "the model: a GGUF file, or the first of a split one", &path,
               {.env = "MODEL", .required = required});
  table.option("--override-kv", "KEY=TYPE:VALUE",
               "use this value of a metadata key instead of the file's; TYPE is int, float, bool or str", &overrides);
}

namespace {

using ops::cpu::CacheType;

// Formats that other engines cache in; here f16 takes their place.
bool is_compressed_type(std::string_view name) {
  static const std::set<std::string, std::less<>> kNames = {
      "q8_0",       "q5_1",       "q5_0",   "q4_1",   "q4_0",   "iq4_nl", "turbo2", "turbo3", "turbo4", "turbo2_tcq",
      "turbo3_tcq", "turbo4_tcq", "kvarn2", "kvarn3", "kvarn4", "kvarn5", "kvarn6", "kvarn7", "kvarn8"};
  return kNames.contains(name);
}

CacheType cache_type_of(std::string_view name) {
  if (name == "f32") return CacheType::kF32;
  if (name == "bf16") return CacheType::kBf16;
  if (name == "f16" || is_compressed_type(name)) return CacheType::kF16;
  fail(ErrorKind::kUsage, "'{}' is not a known value; it must be one of f16, bf16, f32", name);
}

void declare_cache_type(OptionTable& table, std::string_view names, std::string_view help, const char* environment,
                        CacheType* type) {
  table.custom(names, "TYPE", help, [type](std::string_view text) { *type = cache_type_of(text); },
               {.env = environment, .default_text = "f16", .notice_of = [](std::string_view text) -> std::string {
                  return is_compressed_type(text) ? "compressed caches are not there yet; f16 is used instead" : "";
                }});
}

}  // namespace

void ComputeOptions::declare(OptionTable& table, bool with_context) {
  table.group("Compute");
  table.option("-t, --threads", "N", "threads that compute", &threads,
               {.env = "THREADS", .min = 1, .max = 1024, .default_text = "one per core"});
  table.option("-tb, --threads-batch", "N", "threads that compute when several tokens are computed together",
               &threads_batch, {.min = 1, .max = 1024, .default_text = "as --threads"});
  table.custom("-C, --cpu-mask", "HEX", "run on these CPUs only: bit i of the hexadecimal number is CPU i",
               [this](std::string_view text) { cpus = parse_cpu_mask(text); },
               {.default_text = "all that the process may use"});
  table.flag("--mlock", "keep the weights in memory, whatever else wants it", &lock_memory, {.env = "MLOCK"});
  if (with_context)
    table.option("-c, --ctx-size", "N", "tokens of context; 0, and at most: as many as the model was trained for",
                 &context, {.env = "CTX_SIZE"});
  table.option("-b, --batch-size", "N", "tokens of a prompt that are handed to the model together", &batch,
               {.env = "BATCH", .min = 1});
  table.option("-ub, --ubatch-size", "N", "tokens that are computed together", &micro_batch,
               {.env = "UBATCH", .min = 1, .default_text = "512; up to 2048 where experts are streamed"});
  declare_cache_type(table, "-ctk, --cache-type-k", "format of the cached keys: f16, bf16 or f32", "CACHE_TYPE_K",
                     &cache_keys);
  declare_cache_type(table, "-ctv, --cache-type-v", "format of the cached values: f16, bf16 or f32", "CACHE_TYPE_V",
                     &cache_values);
  const std::string sets = fmt::format("instruction set of the kernels ({}); results are the same",
                                       fmt::join(ops::cpu::compiled_kernels(), ", "));
  table.option("--isa", "NAME", sets, &isa, {.env = "ISA", .default_text = "the best that this processor has"});
  experts.declare(table);
}

void ExpertChoices::declare(OptionTable& table) {
  using experts::LookAhead;
  table.group("Experts");
  table.custom("--expert-memory", "SIZE",
               "memory for experts: the others are read from disk when they are needed; auto: as much as there is; all",
               [this](std::string_view text) {
                 memory.reset();
                 if (text == "all") memory = UINT64_MAX;
                 if (text != "all" && text != "auto") memory = parse_size(text);
               },
               {.env = "EXPERT_MEMORY", .default_text = "auto", .instead_of = {"--moe-slot-bank", "--moe-mode"}});
  table.option("--moe-slot-bank", "N", "the same as a number of experts for each layer", &slots,
               {.env = "MOE_SLOT_BANK", .min = 1, .instead_of = {"--expert-memory", "--moe-mode"}});
  table.choice("--moe-mode", "MODE",
               "resident (or stock): all experts in memory; slot-bank: as many as there is room for", &mode,
               {{"resident", Mode::kResident},
                {"stock", Mode::kResident},
                {"resident-bank", Mode::kResident},
                {"slot-bank", Mode::kSlotBank},
                {"resident-slot-bank", Mode::kSlotBank}},
               {.env = "MOE_MODE",
                .default_text = "as --expert-memory says",
                .instead_of = {"--expert-memory", "--moe-slot-bank"}});
  table.option(
      "--moe-sidecar", "PATH",
      "read the experts from this file of `sluice pack` or folder (with a manifest.json) instead of the model's "
      "file",
      &sidecar, {.env = "MOE_SIDECAR"});
  table.flag("--verify", "hold experts of a packed file against their checksums whenever they are read", &verify);
  table.option("--moe-topk", "N", "use fewer experts a token than the model's own number; changes what it says", &used,
               {.env = "MOE_TOPK", .min = 1, .default_text = "the model's"});
  table.choice("--io", "ENGINE", "how experts are read: uring (Linux), threads, or auto: the faster of them", &io,
               {{"auto", ReadEngine::kAuto}, {"uring", ReadEngine::kUring}, {"threads", ReadEngine::kThreads}},
               {.env = "IO"});
  std::vector<std::string> names;
  for (const experts::PolicyInfo& info : experts::policies()) names.push_back(info.name);
  table.option("--expert-policy", "NAME", "which experts stay in memory; results are the same", &policy,
               {.env = "EXPERT_POLICY", .choices = names});
  table.choice("--look-ahead", "WHEN",
               "guess the next layer's experts and read them early; auto: where measurement says that it pays",
               &look_ahead,
               {{"auto", LookAhead::Mode::kAuto}, {"on", LookAhead::Mode::kOn}, {"off", LookAhead::Mode::kOff}},
               {.env = "LOOK_AHEAD"});
  table.flag("--moe-eager-load", "read as many experts as there is room for before the first token", &read_at_start);
  table.flag("--warm-start | --no-warm-start",
             "begin with the experts that were in memory when the model was used last", &warm_start);
}

void SamplingOptions::declare(OptionTable& table) {
  const auto read_seed = [this](std::string_view text) {
    seed.reset();
    if (text != "-1") seed = parse_unsigned(text, UINT64_MAX);
  };
  table.group("Sampling");
  table.custom("-s, --seed", "N", "seed of the random numbers; -1: a new one for each run", read_seed,
               {.default_text = "-1"});
  table.option("--temp, --temperature", "T", "randomness; 0: always the likeliest token", &temperature,
               {.min = 0, .default_text = "the file's, else 0.8"});
  table.option("--top-k", "N", "only the N likeliest tokens; 0: all", &top_k,
               {.env = "TOP_K", .default_text = "the file's, else 40"});
  table.option("--top-p", "P", "only the likeliest tokens that together reach probability P; 1: all", &top_p,
               {.min = 0, .max = 1, .default_text = "the file's, else 0.95"});
  table.option("--min-p", "P", "only tokens at least P times as likely as the likeliest; 0: all", &min_p,
               {.min = 0, .max = 1, .default_text = "the file's, else 0.05"});
  table.option("--repeat-penalty", "X", "divides the logits of tokens that occurred lately; 1: off", &repeat_penalty,
               {.min = 0, .default_text = "the file's, else 1"});
  table.option("--repeat-last-n", "N", "how many of the last tokens the penalties look at; 0: none", &repeat_last_n,
               {.default_text = "the file's, else 64"});
  table.option("--presence-penalty", "X", "subtracted from the logits of tokens that occurred lately",
               &presence_penalty, {.default_text = "0"});
  table.option("--frequency-penalty", "X", "the same for each time that they occurred", &frequency_penalty,
               {.default_text = "0"});
  table.option("-l, --logit-bias", "TOKEN+BIAS", "add BIAS to the logit of a token id (TOKEN-BIAS: subtract)",
               &logit_bias);
}

void declare_accepted_options(OptionTable& table) {
  const char* cpu_only = "all layers are computed on the CPU; this option changes nothing";
  const char* read_explicitly = "weights are always read explicitly, never mapped; this option changes nothing";
  const char* one_cache = "sequences always share one pool of pages; this option changes nothing";
  table.group("Accepted for compatibility");
  table.accept("-ngl, --gpu-layers, --n-gpu-layers", "N", cpu_only, {.env = "N_GPU_LAYERS"});
  table.accept("-ncmoe, --n-cpu-moe", "N", cpu_only, {.env = "N_CPU_MOE"});
  table.accept("-cmoe, --cpu-moe", "", cpu_only);
  table.accept("--no-host", "", cpu_only);
  table.accept("--mmap | --no-mmap", "", read_explicitly);
  table.accept("-kvu, --kv-unified | -no-kvu, --no-kv-unified", "", one_cache);
  table.accept("-fa, --flash-attn", "on|off|auto",
               "attention never stores its score matrix; this option changes nothing",
               {.env = "FLASH_ATTN", .choices = {"on", "off", "auto"}});
  const char* one_way = "there is one way to reach experts, whatever their number; this option changes nothing";
  table.accept("--moe-slot-path", "persistent|legacy", one_way, {.choices = {"persistent", "legacy"}});
  table.accept("--moe-coalesced-sync | --no-moe-coalesced-sync", "", one_way);
  table.accept("--moe-cache-io-split", "N",
               "an expert is read in as few reads as it has parts, many experts at once; "
               "this option changes nothing");
  table.accept("--moe-prefetch-temporal", "",
               "experts of the last token stay in memory by themselves, and the next "
               "layer's are guessed by its router (--look-ahead); this option changes "
               "nothing");
  table.accept("--jinja", "", "chat templates are always rendered as Jinja; this option changes nothing");
  table.accept("--warmup | --no-warmup", "", "there is no warm-up run; this option changes nothing");
}

}  // namespace sluice::cli
