// Chooses the next token from a distribution. A pure function of logits, history and position: the same choice is made
// whether a row was decoded alone, in a batch, or while checking a draft.
//
// The order of steps is llama.cpp's: bias, penalties, top-k, top-p, min-p, temperature, draw.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::decode {

// Defaults are llama.cpp's; a model file may bring others (general.sampling.*).
struct SamplingParameters {
  float temperature = 0.8f;        // 0: always the likeliest token, the lower id on a tie
  uint32_t top_k = 40;             // 0: all
  float top_p = 0.95f;             // smallest set of likeliest tokens that reaches this mass; 1: all
  float min_p = 0.05f;             // only tokens at least this share of the likeliest one's probability; 0: all
  float repeat_penalty = 1.0f;     // > 1 makes tokens of the window less likely
  float presence_penalty = 0.0f;   // subtracted once for each token of the window
  float frequency_penalty = 0.0f;  // subtracted for every time it occurs there
  uint32_t penalty_window = 64;    // last tokens that the penalties look at
  std::vector<std::pair<int32_t, float>> logit_bias;  // token, added to its logit
  uint64_t seed = 0;
};

class Sampler {
 public:
  // `never` are tokens that must not come out (the padding of a vocabulary). Throws Error(kUsage) for a parameter out
  // of range or a bias of a token that isn't one of n_vocab, naming it.
  Sampler(SamplingParameters parameters, size_t n_vocab, std::span<const int32_t> never);

  // The token at `position` (of the token to be chosen), given its logits [n_vocab] and all tokens before it.
  // `sequence` numbers answers to one prompt. Throws Error(kInternal) when the logits are not numbers.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history, uint32_t position,
                 uint64_t sequence = 0) const;

  const SamplingParameters& parameters() const { return parameters_; }

 private:
  struct Candidate {
    int32_t id;
    float logit;
    double weight;  // exp(logit - best) after the last call to weigh()
  };
  void penalize(std::span<const int32_t> history, std::vector<float>& logits) const;
  std::vector<Candidate> candidates(const std::vector<float>& logits) const;
  void keep_top_p(std::vector<Candidate>& list) const;

  SamplingParameters parameters_;
  size_t n_vocab_;
  std::vector<int32_t> never_;
};

}  // namespace sluice::decode
