#include "runner/report/errors/error_pages.h"

namespace trainrun {
namespace {

const char* const kWithEvaluation =
    "dataset:\n  train: {type: Digits, split: train}\n  eval: {type: Digits, split: test}";

}  // namespace

void add_job_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add({ErrorCode::kData,
       "data that cannot be described",
       "What the data set says of its samples before they are read does not hold together, or its files cannot be "
       "found.",
       {"dataset:\n  train: {type: Mixture, of: [{dataset: {type: Digits, split: train}, weight: 1}]}",
        "dataloader: {shuffle: false}"},
       "Do as the message says.",
       {"dataset:\n  train: {type: Mixture, of: [{dataset: {type: Digits, split: train}, weight: 1}]}",
        "dataloader: {shuffle: true}"}});
  add({ErrorCode::kTransform,
       "a transform that does not fit the data",
       "The transform cannot be applied to the samples: another number of channels, a field that is not there, sizes "
       "that "
       "do not go together.",
       {"dataset:\n  train: {type: Digits, split: train}\n"
        "  transforms: [{type: Normalize, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}]"},
       "Change its parameters, or the place at which it stands: `transforms` are for all data, `train_transforms` for "
       "those of training.",
       {"dataset:\n  train: {type: Digits, split: train}\n  transforms: [{type: Normalize, mean: [0.5], std: "
        "[0.5]}]"}});
  add({ErrorCode::kEvaluationData,
       "evaluation data that do not fit the model",
       "The samples of `dataset.eval` are unlike those of `dataset.train`, for which the model is made.",
       {"dataset:\n  train: {type: Digits, split: train}\n  eval: {type: Synthetic, num_samples: 100, shape: [1, 9, "
        "9]}"},
       "Bring both to the same form; `eval_transforms` are for the data of evaluation alone.",
       {kWithEvaluation}});
  add({ErrorCode::kTokens,
       "tokens that cannot be added",
       "`add_tokens` and `add_special_tokens` add tokens to the one tokenizer of the data, whose embeddings then have "
       "to "
       "be trained.",
       {"dataset:\n  train: {type: Digits, split: train}\n  add_tokens: ['<x>']"},
       "Write them once, below `dataset`, where all data read one tokenizer.",
       {"dataset:\n  train: {type: Digits, split: train}"}});
  add({ErrorCode::kSampling,
       "samples that cannot be drawn in this order",
       "The data set needs its samples in an order, such as that of time, in which they do not come; or they cannot be "
       "ordered as the dataloader is to order them.",
       {"dataset:\n  train: {type: Windows, length: 4, dataset: {type: Split, part: train, dataset: {type: Synthetic, "
        "num_samples: 64, shape: [3]}}}"},
       "Do as the message says.",
       {"dataset:\n  train: {type: Windows, length: 4, dataset: {type: Split, part: train, shuffle: false, dataset: "
        "{type: "
        "Synthetic, num_samples: 64, shape: [3]}}}"}});
  add({ErrorCode::kMonitor,
       "a figure that evaluation does not give",
       "Something is to be chosen or stopped by a figure that no evaluation computes: it is misspelled, its metric is "
       "missing, or there are no evaluations.",
       {kWithEvaluation, "checkpoint: {keep_best: {monitor: eval/accuracy}}"},
       "Add the metric, or write a name that the message lists.",
       {kWithEvaluation, "metrics: [Accuracy]", "checkpoint: {keep_best: {monitor: eval/accuracy}}"}});
  add({ErrorCode::kMonitorMode,
       "whether less or more is better is not known",
       "Of this figure trainrun cannot tell whether a smaller or a larger value is the better one.",
       {kWithEvaluation, "metrics: [ConfusionMatrix]", "checkpoint: {keep_best: {monitor: eval/confusion_matrix/0/0}}"},
       "Write mode: min or mode: max beside the monitor.",
       {kWithEvaluation, "metrics: [ConfusionMatrix]",
        "checkpoint: {keep_best: {monitor: eval/confusion_matrix/0/0, mode: max}}"}});
}

}  // namespace trainrun
