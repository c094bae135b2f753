#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// How the numbers of a tensor are spread. Numbers that are not finite are counted apart.
struct Histogram {
  std::string name;  // "weights/0.weight"
  double min = 0, max = 0, count = 0, sum = 0, sum_of_squares = 0;
  int64_t not_finite = 0;
  std::vector<double> limits;  // upper ones, of each bucket
  std::vector<double> counts;
};

struct HistogramRecord {
  int64_t step = 0;
  std::vector<Histogram> histograms;
};

/// A picture as the model gets it, after all transforms.
struct LoggedPicture {
  std::string name;  // "image/0"
  int64_t height = 0, width = 0, channels = 0;
  std::string png;  // a file's bytes
};

struct PicturesRecord {
  int64_t step = 0;
  std::vector<LoggedPicture> pictures;
};

/// A layer of the model, to be drawn.
struct DrawnLayer {
  std::string name;                 // "layer1/0/conv2"
  std::string type;                 // "Conv2d"
  std::vector<std::string> inputs;  // names of layers, or of inputs of the model
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<int64_t> shape;  // of its first output, -1 for the batch
};

struct DrawnGraph {
  std::vector<DrawnLayer> layers;
};

/// What a logger may be besides, to see tensors: as plain numbers, counted on the training thread when it wants them.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  /// How many steps apart it wants histograms of weights and gradients; 0: never.
  virtual int64_t histograms_every() const { return 0; }
  virtual void on_histograms(const HistogramRecord& record) { static_cast<void>(record); }
  /// How many pictures of each epoch's first batch it wants.
  virtual int64_t num_pictures() const { return 0; }
  virtual void on_pictures(const PicturesRecord& record) { static_cast<void>(record); }
  /// Before `on_start`.
  virtual void on_graph(const DrawnGraph& graph) { static_cast<void>(graph); }
};

}  // namespace trainrun
