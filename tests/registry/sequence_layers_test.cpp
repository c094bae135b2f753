#include <torch/torch.h>

#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

/// Inputs called x, y, z.
LayerInputs named_from_x(const std::vector<at::Tensor>& examples) {
  LayerInputs inputs;
  for (const at::Tensor& example : examples) {
    inputs.names.emplace_back(1, static_cast<char>('x' + inputs.examples.size()));
    inputs.examples.push_back(example.to(at::kMeta));
  }
  return inputs;
}

std::shared_ptr<Graph> build_layer(const std::string& layer, const std::vector<at::Tensor>& examples) {
  return build("[{type: " + layer + "}]", named_from_x(examples));
}

/// What is wrong with one layer that reads `examples`: without its place, type and inputs.
std::string misfit(const std::string& layer, const std::vector<at::Tensor>& examples) {
  try {
    build_layer(layer, examples);
  } catch (const RecipeError& error) {
    REQUIRE(error.problems().size() == 1);
    const std::string message = error.problems()[0].message;
    const std::string start = " does not fit its input ";
    CAPTURE(message);
    REQUIRE(message.find(start) != std::string::npos);
    return message.substr(message.find(": ", message.find(start)) + 2);
  }
  return "";
}

/// What is wrong with the parameters of a layer.
std::string parameter_fault(const std::string& layer) {
  std::vector<Problem> problems;
  read<LayerList>("[{type: " + layer + "}]", catalog(), problems);
  REQUIRE(problems.size() == 1);
  return problems[0].path + ": " + problems[0].message;
}

const at::Tensor kTable = torch::zeros({2, 6});
const at::Tensor kSequences = torch::zeros({2, 5, 8});  // [N, T, C]

}  // namespace

TEST_CASE("layers of sequences say what does not fit") {
  CHECK(misfit("MultiheadAttention, num_heads: 3", {kSequences}) ==
        "3 heads do not divide the 8 features of the input");
  CHECK(misfit("TransformerEncoder, nhead: 5, num_layers: 2", {kSequences}) ==
        "5 heads do not divide the 8 features of the input");
  CHECK(misfit("MultiheadAttention, num_heads: 2, embed_dim: 6", {kSequences}) ==
        "embed_dim is 6, but the input has 8");
  CHECK(misfit("MultiheadAttention, num_heads: 2", {kTable}) == "it needs [T, N, C], not [N, 6]");
  CHECK(misfit("MultiheadAttention, num_heads: 2, inputs: [x, x]", {kSequences}) ==
        "it reads a query, or query, key and value, or query, key, value and key padding mask, but gets 2 inputs");
  CHECK(misfit("MultiheadAttention, num_heads: 2, batch_first: true, inputs: [x, x, x, y]",
               {kSequences, torch::zeros({2, 4}, at::kBool)}) == "the padding mask of 5 keys is [N, 5], not [2, 4]");
  CHECK(misfit("MultiheadAttention, num_heads: 2, batch_first: true, inputs: [x, y, z]",
               {kSequences, torch::zeros({2, 6, 8}), torch::zeros({2, 7, 8})}) ==
        "key and value are of different lengths: [2, 6, 8] and [2, 7, 8]");
  CHECK(misfit("TransformerDecoderLayer, nhead: 2", {kSequences}) ==
        "it reads a sequence and the encoder's, and optionally the padding mask of the first or of both, but gets 1 "
        "inputs");
  CHECK(misfit("TransformerDecoderLayer, nhead: 2, batch_first: true, inputs: [x, y]",
               {kSequences, torch::zeros({2, 5, 6})}) == "the key has 6 features, expected 8");
  CHECK(misfit("PositionalEncoding, max_len: 4, batch_first: true", {kSequences}) ==
        "the sequence has 5 positions, max_len is 4");
  CHECK(misfit("GRU, hidden_size: 3", {kTable}) == "it needs [T, N, C], not [N, 6]");
  CHECK(misfit("GRU, hidden_size: 3, batch_first: true, inputs: [x, y]", {kSequences, torch::zeros({1, 2, 4})}) ==
        "its state is [1, 2, 3], but [1, 2, 4] is given");
  CHECK(misfit("LSTM, hidden_size: 3, inputs: [x, x]", {kSequences}) ==
        "it reads the sequence, or the sequence and the states h and c to begin with, but gets 2 inputs");
  CHECK(misfit("EmbeddingBag, num_embeddings: 3, embedding_dim: 2", {kTable}) ==
        "it looks up integer indices, but the input is Float");
  CHECK(misfit("EmbeddingBag, num_embeddings: 3, embedding_dim: 2, inputs: [x, y]",
               {torch::zeros({2, 6}, at::kLong), kTable}) == "weights of a bag's indices need mode: sum");
}

TEST_CASE("a dimension that is not there is said to be out of range") {
  for (const std::string layer : {"Softmax, dim: 2", "Mean, dim: 2", "Max, dim: 2", "Transpose, dim0: 1, dim1: 2",
                                  "GLU, dim: 2", "Chunk, chunks: 2, dim: 2", "Split, split_size_or_sections: 2, dim: 2",
                                  "Squeeze, dim: 2", "CosineSimilarity, dim: 2, inputs: [x, x]"}) {
    CAPTURE(layer);
    CHECK(misfit(layer, {kTable}) == "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  }
  CHECK(misfit("Permute, dims: [0, 2, 1]", {kTable}) ==
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  CHECK(misfit("Permute, dims: [0, 2, 2]", {kSequences}) ==
        "dims is [0, 2, 2], but [N, 5, 8] has 3 dimensions: each is named once");
  CHECK(misfit("Permute, dims: [0, 1]", {kSequences}) ==
        "dims is [0, 1], but [N, 5, 8] has 3 dimensions: each is named once");
  CHECK(misfit("Softmax", {kSequences}) == "write dim: PyTorch's own choice for [N, 5, 8] is 0, the batch");
  CHECK(misfit("GLU", {torch::zeros({2, 5})}) == "Halving dimension must be even, but dimension 1 is size 5");
  CHECK(misfit("Chunk, chunks: 4", {kTable}) == "a dimension of size 6 makes 3 chunks, not 4");
  CHECK(misfit("Sub, inputs: [x, x, x]", {kTable}) ==
        "it reads 2 inputs, but gets 3; write inputs: [NAME, NAME], with names of earlier layers or of fields of the "
        "batch");
  CHECK(misfit("PReLU, num_parameters: 4", {kTable}) == "num_parameters is 4, but the input has 6");
}

TEST_CASE("parameters that do not fit together are said where they stand") {
  CHECK(parameter_fault("Hardtanh, min_val: 1, max_val: 0.5") == "[0].max_val: must be greater than min_val");
  CHECK(parameter_fault("RReLU, lower: 1") == "[0].upper: must not be smaller than lower");
  CHECK(parameter_fault("LeakyReLU, negative_slope: -1, inplace: true") ==
        "[0].inplace: has no gradient where negative_slope is negative");
  CHECK(parameter_fault("CELU, alpha: 0") == "[0].alpha: must not be 0, by which CELU divides");
  CHECK(parameter_fault("Mean, dim: []") == "[0].dim: needs at least one dimension");
  CHECK(parameter_fault("EmbeddingBag, num_embeddings: 3, embedding_dim: 2, mode: max, scale_grad_by_freq: true") ==
        "[0].scale_grad_by_freq: is not available for mode: max");
}

TEST_CASE("an evaluated batch of one sample keeps its batch dimension") {
  const auto graph = build_layer("Squeeze", {torch::zeros({2, 1, 3, 1})});
  CHECK(graph->forward({torch::zeros({1, 1, 3, 1})})[0].sizes() == at::IntArrayRef({1, 3}));
}

TEST_CASE("what is padding does not change what comes out elsewhere") {
  torch::manual_seed(1);
  const std::string layer =
      "TransformerEncoder, nhead: 2, num_layers: 2, batch_first: true, dropout: 0, inputs: [x, y]";
  const auto graph = build_layer(layer, {kSequences, torch::zeros({2, 5}, at::kLong)});
  const auto x = torch::randn({2, 5, 8});
  const auto mask = torch::tensor({{1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}});  // as tokenizers give it
  auto other = x.clone();
  other[0].slice(0, 3).normal_();
  const auto a = graph->forward({x, mask})[0];
  const auto b = graph->forward({other, mask})[0];
  CHECK(a[0].slice(0, 0, 3).equal(b[0].slice(0, 0, 3)));
  CHECK(a[1].equal(b[1]));
  CHECK(!a.equal(b));
}

TEST_CASE("an encoder's state names are Python's, and its layers begin alike but are not one") {
  const auto graph =
      build_layer("TransformerEncoder, nhead: 2, num_layers: 2, norm: true, name: encoder", {kSequences});
  const auto parameters = graph->named_parameters();
  const auto& first = parameters["encoder.layers.0.self_attn.in_proj_weight"];
  const auto& second = parameters["encoder.layers.1.self_attn.in_proj_weight"];
  CHECK(first.equal(second));
  CHECK(first.data_ptr() != second.data_ptr());
  for (const std::string name : {"layers.0.self_attn.in_proj_bias", "layers.1.self_attn.out_proj.weight",
                                 "layers.1.self_attn.out_proj.bias", "layers.0.linear1.weight", "layers.0.linear2.bias",
                                 "layers.1.norm1.weight", "layers.1.norm2.bias", "norm.weight", "norm.bias"}) {
    CAPTURE(name);
    CHECK(parameters.contains("encoder." + name));
  }
  CHECK(parameters.size() == 2 * 12 + 2);
}
