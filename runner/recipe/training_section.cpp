// What a recipe says of training itself: how long, what is evaluated, saved and logged.
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

// Far beyond any use, and so that no product of them with sizes of models and data leaves an int64.
constexpr double kMostEpochs = 1e9;
constexpr double kMostAccumulation = 1e6;
constexpr const char* kEveryDoc = "epoch, a number of optimizer steps, or null for never";

}  // namespace

void TrainingSection::describe(Fields<TrainingSection>& f) {
  f.optional("num_epochs", &TrainingSection::num_epochs)
      .at_least(1)
      .at_most(kMostEpochs)
      .doc("passes over the training data");
  f.optional("max_steps", &TrainingSection::max_steps)
      .at_least(1)
      .doc("number of optimizer steps after which training ends");
  f.optional("max_time", &TrainingSection::max_time)
      .doc(
          "training ends after the step in which this time runs out, such as 30s, 15min, 2h; the time before a resume "
          "counts");
  f.optional("max_tokens", &TrainingSection::max_tokens)
      .at_least(1)
      .doc(
          "training ends after the step that reaches this number of tokens: positions of input_ids over all ranks, "
          "padding included; those before a resume count");
  f.optional("gradient_accumulation_steps", &TrainingSection::gradient_accumulation_steps)
      .at_least(1)
      .at_most(kMostAccumulation)
      .doc("batches whose gradients make one optimizer step");
  f.optional("max_grad_norm", &TrainingSection::max_grad_norm)
      .greater_than(0)
      .doc("gradients with a larger 2-norm are scaled down to it");
  f.optional("max_grad_value", &TrainingSection::max_grad_value)
      .greater_than(0)
      .doc("each element of the gradients is clamped to [-max_grad_value, max_grad_value]");
  f.optional("lr_scaling", &TrainingSection::lr_scaling)
      .doc(
          "the optimizer's learning rates are multiplied by num_processes × gradient_accumulation_steps (linear), or "
          "by its square root (sqrt)");
  f.optional("fuse", &TrainingSection::fuse)
      .doc(
          "compute some consecutive layers as one, and leave out positions that nothing reads, such as padding; both "
          "are faster, and explain shows which ones");
  f.optional("convolutions", &TrainingSection::convolutions)
      .doc(
          "fast: by Winograd's algorithm where that is quicker, equal but for rounding, as cuDNN does; direct: by "
          "PyTorch's own sums");
  f.rule({.any = {the("num_epochs").is_given(), the("max_steps").is_given()},
          .at = "num_epochs",
          .message = "training needs num_epochs or max_steps"});
  f.rule({.when = {the("max_grad_norm").is_given()},
          .all = {the("max_grad_value").is_missing()},
          .at = "max_grad_value",
          .message = "clips what max_grad_norm clips, too; leave one of the two out"});
}

void EvaluationSection::describe(Fields<EvaluationSection>& f) {
  f.optional("every", &EvaluationSection::every).at_least(1).one_of({"epoch"}).doc(kEveryDoc);
  f.optional("tta", &EvaluationSection::tta)
      .one_of({"flip", "five_crop"})
      .doc(
          "test-time augmentation: flip averages the predictions for each image and its mirror image; five_crop, those "
          "for the image and four copies shifted by an eighth");
}

void KeepBestSection::describe(Fields<KeepBestSection>& f) {
  f.required("monitor", &KeepBestSection::monitor)
      .doc("the figure that decides which checkpoint is best, such as eval/accuracy");
  describe_mode(f);
}

void CheckpointSection::describe(Fields<CheckpointSection>& f) {
  f.optional("every", &CheckpointSection::every)
      .at_least(1)
      .one_of({"epoch"})
      .doc("epoch, a number of optimizer steps, a time such as 15min, or null for never");
  f.optional("keep_last", &CheckpointSection::keep_last)
      .at_least(1)
      .doc("number of the newest checkpoints to keep; null: all");
  f.optional("keep_best", &CheckpointSection::keep_best).doc("keep the best checkpoint as well");
  f.optional("background", &CheckpointSection::background)
      .doc(
          "whether training continues while a checkpoint is written; until it is written, memory holds a copy of the "
          "weights and of the optimizer's state");
  f.optional("resume", &CheckpointSection::resume)
      .words({"auto", "no"})
      .doc(
          "auto: resume an unfinished run of this recipe in output_dir; no: start from the beginning; or the path of a "
          "checkpoint, "
          "or of a run, whose newest checkpoint is used");
  f.optional("allow_changed", &CheckpointSection::allow_changed)
      .one_of({"data"})
      .doc(
          "what may have changed since a checkpoint was made: with [data] a run is resumed even if its data have "
          "changed");
  f.rule({.when = {the("keep_best").is_given()},
          .all = {the("every").is_given()},
          .at = "keep_best",
          .message = "no checkpoint is kept, because checkpoint.every is null"});
}

void LoggingSection::describe(Fields<LoggingSection>& f) {
  f.optional("every_steps", &LoggingSection::every_steps)
      .at_least(1)
      .unit("optimizer steps")
      .doc("optimizer steps between two lines of the log");
  f.optional("peak_flops", &LoggingSection::peak_flops)
      .greater_than(0)
      .unit("FLOP/s")
      .doc(
          "the peak performance of one device; with it, the log reports train/mfu, the share of it that training uses. "
          "It is known for common GPUs");
  f.optional("report_to", &LoggingSection::report_to).doc("the loggers; console and jsonl by default");
}

}  // namespace trainrun
