// Everything of a quantized model's forward pass except the integer products, exactly: with its weights written out as
// F32 the model must meet the float32 tolerances of its references, which were computed from the dequantized values.
#include <gtest/gtest.h>

#include "model/test_edited_model.h"
#include "model/test_reference_model.h"

namespace sluice::model {
namespace {

class ExactTwin : public ::testing::TestWithParam<std::string> {
 protected:
  ReferenceModel reference{GetParam()};
  TestEngine engine{exact_twin(gguf::Container::open(reference.model_path()))};
};

TEST_P(ExactTwin, LogitsAtEveryPromptLength) { expect_logits_in_float32(reference, engine); }

TEST_P(ExactTwin, InnerStates) { expect_inner_states_in_float32(reference, engine); }

INSTANTIATE_TEST_SUITE_P(Reference, ExactTwin, ::testing::ValuesIn(quantized_folders()), test_name);

}  // namespace
}  // namespace sluice::model
