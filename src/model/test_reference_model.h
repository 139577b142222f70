// For tests: the reference models (tiny GGUF files with the results of independent implementations; their README says
// which), found, read, and held to their tolerances.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/test_engine.h"
#include "support/safetensors.h"

namespace sluice::model {

// Folders with model.gguf and reference.safetensors: of the full set, or the selection in the tree.
std::vector<std::string> reference_folders();
// Of those, the ones whose weights are all floats, or the others. Products with quantized weights round activations.
std::vector<std::string> float_folders();
std::vector<std::string> quantized_folders();

// A folder's name as part of a test's name.
std::string test_name(const ::testing::TestParamInfo<std::string>& folder);

class ReferenceModel {
 public:
  explicit ReferenceModel(const std::string& folder);

  const std::string& name() const { return name_; }
  std::string model_path() const { return folder_ + "/model.gguf"; }
  bool quantized() const { return quantized_; }
  double tolerance(const std::string& key) const { return tolerances_.at(key); }
  // The share of tokens whose most likely successor stays the same when rounding is simulated.
  double simulated_top1() const { return simulated_top1_; }

  // Lengths of the prompts, ascending; each is a tensor prompt.N.tokens.
  const std::vector<int>& prompts() const { return prompts_; }
  std::vector<int32_t> prompt(int length) const { return ints(at(length, "tokens")); }

  static std::string at(int length, const std::string& what) { return "prompt." + std::to_string(length) + "." + what; }
  bool has(const std::string& tensor) const { return tensors_.contains(tensor); }
  std::vector<float> floats(const std::string& tensor) const { return tensors_.at(tensor).as<float>(); }
  std::vector<int32_t> ints(const std::string& tensor) const { return tensors_.at(tensor).as<int32_t>(); }

 private:
  std::string name_, folder_;
  bool quantized_ = false;
  double simulated_top1_ = 0;
  std::map<std::string, double> tolerances_;
  std::map<std::string, test::Tensor> tensors_;
  std::vector<int> prompts_;
};

// The largest |a - b|; infinite when sizes differ or a value is NaN.
double max_difference(std::span<const float> a, std::span<const float> b);

// Holds the logits of every prompt to the tolerance for float32 activations.
void expect_logits_in_float32(const ReferenceModel& reference, TestEngine& engine);
// The same for what lies inside: the residual stream after each block, the experts chosen, keys, values and recurrent
// state, as far as the references have them.
void expect_inner_states_in_float32(const ReferenceModel& reference, TestEngine& engine);

}  // namespace sluice::model
