#include "server/info.h"

#include <ctime>

#include "server/json.h"
#include "server/shapes.h"

namespace sluice::server {

namespace {

std::string text_of(const chat::Tokenizer& tokenizer, std::optional<int32_t> token) {
  return token ? tokenizer.text(*token) : std::string();
}

Json memory(const Engine& engine, const ServiceStatus& status) {
  Json plan = Json::object();
  for (const MemoryPlan::Category& category : engine.plan().categories) plan[category.name] = category.bytes;
  return {{"planned", engine.plan().total()},
          {"plan", std::move(plan)},
          {"kv_pages", status.kv_pages},
          {"kv_pages_used", status.kv_pages_used},
          {"prompt_cache_bytes", status.cache_bytes},
          {"prompt_cache_bytes_used", status.cache_bytes_used},
          {"prompt_cache_entries", status.cache_entries},
          {"experts_in_memory", engine.plan().slots},
          {"experts", engine.plan().experts}};
}

}  // namespace

std::string models_body(const ServerFacts& facts, const Engine* engine) {
  Json model = {{"id", facts.alias}, {"object", "model"}, {"created", std::time(nullptr)}, {"owned_by", "sluice"}};
  if (engine != nullptr) {
    const model::Hyperparameters& hp = engine->model().hp;
    model["meta"] = {{"architecture", hp.architecture->name},
                     {"name", hp.name},
                     {"n_vocab", hp.n_vocab},
                     {"n_ctx", engine->context_size()},
                     {"n_ctx_train", hp.n_context},
                     {"n_embd", hp.n_embd},
                     {"size", engine->loaded_bytes()}};
  }
  return to_text({{"object", "list"}, {"data", Json::array({std::move(model)})}});
}

std::string props_body(const ServerFacts& facts, const Engine& engine, const ServiceStatus& status) {
  const chat::Tokenizer& tokenizer = engine.tokenizer();
  return to_text({{"default_generation_settings",
                   {{"n_ctx", engine.context_size()}, {"params", sampling_settings(facts.sampling)}}},
                  {"total_slots", status.slots.size()},
                  {"model_alias", facts.alias},
                  {"model_path", facts.path},
                  {"modalities", {{"vision", false}, {"audio", false}}},
                  {"endpoint_slots", facts.slots},
                  {"endpoint_props", false},
                  {"endpoint_metrics", facts.metrics},
                  {"chat_template", facts.chat_template == nullptr ? std::string() : *facts.chat_template},
                  {"bos_token", text_of(tokenizer, tokenizer.bos())},
                  {"eos_token", text_of(tokenizer, tokenizer.eos())},
                  {"memory", memory(engine, status)},
                  {"threads", engine.threads()},
                  {"build_info", facts.version}});
}

std::string slots_body(const Engine& engine, const ServiceStatus& status) {
  Json out = Json::array();
  for (const SlotStatus& slot : status.slots) {
    Json one = {{"id", slot.id},
                {"n_ctx", engine.context_size()},
                {"speculative", false},
                {"is_processing", slot.busy},
                {"n_tokens", slot.tokens}};
    if (slot.request > 0) {
      one["id_task"] = slot.request;
      one["in_prompt"] = slot.in_prompt;
      one["n_prompt_tokens"] = slot.stats.prompt_tokens;
      one["n_prompt_tokens_processed"] = slot.stats.computed_tokens;
      one["n_prompt_tokens_cache"] = slot.stats.cached_tokens;
      one["next_token"] = Json::array({Json{{"has_next_token", slot.busy}, {"n_decoded", slot.stats.answer_tokens}}});
      one["timings"] = timings(slot.stats, engine.tokenizer());
      one["timings"].erase("cache_had");  // text of a prompt
    }
    out.push_back(std::move(one));
  }
  return to_text(out);
}

}  // namespace sluice::server
