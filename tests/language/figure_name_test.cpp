#include "registry/language/figure_name.h"

#include <doctest/doctest.h>

namespace trainrun {
namespace {

TEST_CASE("a figure is called as its type is, in snake case, with words that hold capitals whole") {
  const auto name = [](const char* type) { return figure_name(type, {}); };
  CHECK(name("TopKAccuracy") == "top_k_accuracy");
  CHECK(name("MSE") == "mse");
  CHECK(name("BCEWithLogitsLoss") == "bce_with_logits_loss");
  CHECK(name("CTCErrorRate") == "ctc_error_rate");
  CHECK(name("EntityF1") == "entity_f1");
  CHECK(name("MeanIoU") == "mean_iou");
  CHECK(name("IoULoss") == "iou_loss");
  CHECK(name("GIoULoss") == "giou_loss");
  CHECK(name("SimPOLoss") == "simpo_loss");
  CHECK(name("CoSENTLoss") == "cosent_loss");
  CHECK(name("CosineSimilarityLoss") == "cosine_similarity_loss");
  CHECK(name("SimPOstal") == "sim_p_ostal");
  CHECK(figure_name("MeanIoU", "io_u") == "io_u");
}

TEST_CASE("an older name of a figure is understood, and no other is changed") {
  CHECK(present_figure_name("eval/mean_io_u") == "eval/mean_iou");
  CHECK(present_figure_name("eval/street/mean_io_u/3") == "eval/street/mean_iou/3");
  CHECK(present_figure_name("eval/mean_io_u_2") == "eval/mean_iou_2");
  CHECK(present_figure_name("eval/loss/sim_po_loss") == "eval/loss/simpo_loss");
  CHECK(present_figure_name("eval/loss/co_sent_loss") == "eval/loss/cosent_loss");
  CHECK(present_figure_name("mean_io_u") == "mean_iou");
  for (const char* other : {"eval/mean_io_unit", "eval/my_mean_io_u", "eval/accuracy", "mean_iou", ""}) {
    CHECK(present_figure_name(other) == other);
  }
}

}  // namespace
}  // namespace trainrun
