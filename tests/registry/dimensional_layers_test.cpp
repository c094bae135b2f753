#include <torch/torch.h>

#include "registry/kinds/graph_builder.h"
#include "registry/tensors/component_error.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

/// What a recipe's reader, or else the graph, says of one layer that reads zeros of this shape: the text behind the
/// place, or "" where all is well.
std::string layer_fault(const std::string& layer, const std::vector<int64_t>& shape) {
  std::vector<Problem> problems;
  const auto layers = read<LayerList>("[" + layer + "]", catalog(), problems);
  if (!problems.empty()) return problems[0].path + ": " + problems[0].message;
  try {
    build_graph(*layers, inputs_like(torch::zeros(shape)));
  } catch (const RecipeError& error) {
    const std::string text = error.what();
    const std::string before = "from 'x': ";
    return text.substr(text.find(before) + before.size());
  }
  return "";
}

// NOLINTBEGIN(bugprone-throwing-static-initialization): a test that cannot allocate these fails anyway
const std::vector<int64_t> kLine = {2, 4, 8};
const std::vector<int64_t> kPicture = {2, 4, 8, 8};
const std::vector<int64_t> kVolume = {2, 4, 8, 8, 8};
// NOLINTEND(bugprone-throwing-static-initialization)

}  // namespace

TEST_CASE("a window larger than the input is said with both sizes, whatever the layer") {
  const std::string message = "a window of 9 does not fit an input of 8 with a padding of 0";
  CHECK(layer_fault("{type: Conv1d, out_channels: 4, kernel_size: 9}", kLine) == message);
  CHECK(layer_fault("{type: Conv3d, out_channels: 4, kernel_size: [1, 1, 9]}", kVolume) == message);
  CHECK(layer_fault("{type: Conv3d, out_channels: 4, kernel_size: [1, 5, 1], dilation: 2}", kVolume) == message);
  for (const char* pool : {"MaxPool", "AvgPool"}) {
    CAPTURE(pool);
    CHECK(layer_fault(std::string("{type: ") + pool + "1d, kernel_size: 9}", kLine) == message);
    CHECK(layer_fault(std::string("{type: ") + pool + "2d, kernel_size: [2, 9]}", kPicture) == message);
    CHECK(layer_fault(std::string("{type: ") + pool + "3d, kernel_size: 9}", kVolume) == message);
    CHECK(
        layer_fault(std::string("{type: ") + pool + "1d, kernel_size: 9, stride: 2, ceil_mode: true}", kLine).empty());
  }
  CHECK(layer_fault("{type: LPPool2d, norm_type: 2, kernel_size: 9}", kPicture) == message);
  CHECK(layer_fault("{type: Unfold, kernel_size: 9}", kPicture) == message);
  CHECK(layer_fault("{type: ReflectionPad1d, padding: 8}", kLine).find("Padding size should be less than") !=
        std::string::npos);
}

TEST_CASE("channels that the groups do not divide are said with both numbers") {
  CHECK(layer_fault("{type: Conv1d, out_channels: 6, kernel_size: 3, groups: 3}", kLine) ==
        "groups is 3, which does not divide the 4 channels of the input");
  CHECK(layer_fault("{type: ConvTranspose2d, out_channels: 6, kernel_size: 3, groups: 3}", kPicture) ==
        "groups is 3, which does not divide the 4 channels of the input");
  CHECK(layer_fault("{type: Conv3d, out_channels: 5, kernel_size: 3, groups: 2}", kVolume) ==
        "[0].groups: must divide out_channels, 5");
  CHECK(layer_fault("{type: GroupNorm, num_groups: 3}", kPicture) ==
        "num_groups is 3, which does not divide the 4 channels of the input");
  CHECK(layer_fault("{type: PixelShuffle, upscale_factor: 3}", kPicture).find("is not divisible by 9") !=
        std::string::npos);
  CHECK(layer_fault("{type: ChannelShuffle, groups: 3}", kPicture).find("Got 4 channels and 3 groups") !=
        std::string::npos);
}

TEST_CASE("an input of another number of dimensions is said with what is needed") {
  CHECK(layer_fault("{type: Conv1d, out_channels: 4, kernel_size: 3}", kPicture) ==
        "it needs [N, C, L], not [N, 4, 8, 8]");
  CHECK(layer_fault("{type: ConvTranspose3d, out_channels: 4, kernel_size: 3}", kPicture) ==
        "it needs [N, C, D, H, W], not [N, 4, 8, 8]");
  CHECK(layer_fault("BatchNorm1d", kPicture) == "it needs [N, C] or [N, C, L], not [N, 4, 8, 8]");
  CHECK(layer_fault("InstanceNorm2d", kLine) == "it needs [N, C, H, W], not [N, 4, 8]");
  CHECK(layer_fault("{type: AvgPool3d, kernel_size: 2}", kPicture) == "it needs [N, C, D, H, W], not [N, 4, 8, 8]");
  CHECK(layer_fault("{type: ZeroPad1d, padding: 2}", kPicture) == "it needs [N, C, L], not [N, 4, 8, 8]");
  CHECK(layer_fault("Dropout3d", kPicture) == "it needs [N, C, D, H, W], not [N, 4, 8, 8]");
  CHECK(layer_fault("{type: Upsample, scale_factor: 2, mode: trilinear}", kPicture) ==
        "mode trilinear is for inputs of 5 dimensions, the batch and channels counted");
  CHECK(layer_fault("{type: Upsample, size: [4, 4, 4]}", kPicture) ==
        "size has 3 numbers for an input of 2 dimensions beside batch and channels");
}

TEST_CASE("parameters that do not fit together are said before any shape is known") {
  CHECK(layer_fault("{type: Conv3d, out_channels: 4, kernel_size: 3, stride: [1, 1, 2], padding: same}", kVolume) ==
        "[0].padding: 'same' needs a stride of 1");
  CHECK(layer_fault("{type: ConvTranspose1d, out_channels: 4, kernel_size: 3, stride: 2, output_padding: 2}", kLine) ==
        "[0].output_padding: must be less than stride or dilation");
  CHECK(layer_fault("{type: AvgPool1d, kernel_size: 3, padding: 2}", kLine) ==
        "[0].padding: may be at most half of kernel_size");
  CHECK(layer_fault("Upsample", kPicture) == "[0].size: either size or scale_factor must be given, and not both");
  CHECK(layer_fault("{type: Upsample, size: 4, align_corners: true}", kPicture) ==
        "[0].align_corners: has no meaning for mode nearest");
  CHECK(layer_fault("{type: Conv1d, out_channels: 4, kernel_size: [3, 3]}", kLine) ==
        "[0].kernel_size: expected integer or list of 1, found a list of 2");
}

TEST_CASE("one number alone cannot be normalized") {
  CHECK(layer_fault("InstanceNorm1d", {2, 4, 1}) ==
        "it normalizes over more than one value per channel of a sample, but [N, 4, 1] has one");
  const auto graph = build_graph(read<LayerList>("[BatchNorm1d]", catalog()), inputs_like(torch::zeros({2, 4})));
  CHECK_THROWS_WITH_AS(graph->forward({torch::zeros({1, 4})}),
                       "test.yaml:1:2: [0]: BatchNorm1d failed on [1, 4]: it normalizes over more than one value per "
                       "channel while training, but [1, 4] has one",
                       ComponentError);
  graph->eval();
  CHECK(graph->forward({torch::zeros({1, 4})})[0].sizes() == at::IntArrayRef({1, 4}));

  const LayerInputs points = inputs_like(torch::zeros({2, 4}));
  const auto groups = build_graph(read<LayerList>("[{type: GroupNorm, num_groups: 4}]", catalog()), points);
  CHECK_THROWS_WITH_AS(groups->forward({torch::zeros({1, 4})}),
                       "test.yaml:1:2: [0]: GroupNorm failed on [1, 4]: it normalizes over more than one value per "
                       "group while training, but [1, 4] in 4 groups has one",
                       ComponentError);
  groups->forward({torch::zeros({2, 4})});  // as in PyTorch
  const auto halves = build_graph(read<LayerList>("[{type: GroupNorm, num_groups: 2}]", catalog()), points);
  halves->forward({torch::zeros({1, 4})});
}
