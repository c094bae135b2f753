#include <algorithm>
#include <string_view>
#include <vector>

#include "registry/language/error.h"
#include "runner/report/errors/error_code.h"

namespace trainrun {
namespace {

/// How the messages of one kind of mistake are worded; "…" stands for any text.
struct Form {
  ErrorCode code;
  std::string_view text;
};

constexpr std::string_view kAnything = "…";

/// The forms, tried one after the other. What none of them fits, and no place in the recipe says, is a rule of a
/// component.
const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {ErrorCode::kNotARecipe, "a recipe is a mapping…"},
      {ErrorCode::kNotARecipe, "the file is empty; expected a mapping…"},
      {ErrorCode::kBase, "expected the path of a recipe, found …"},
      {ErrorCode::kBase, "recipes that are based on each other: …"},
      {ErrorCode::kWeights, "there is no file or folder …"},
      {ErrorCode::kBase, "there is no file …"},
      {ErrorCode::kBase, "…: the bases are read before the values; …"},
      {ErrorCode::kBase, "… is not a recipe: it does not hold a mapping…"},
      {ErrorCode::kBase, "more than … bases in a row"},
      {ErrorCode::kBase, "more than … files in one recipe"},
      {ErrorCode::kTooLarge, "…more than … values once its aliases are expanded"},
      {ErrorCode::kTooLarge, "nested deeper than …"},
      {ErrorCode::kTooLarge, "a key of more than … bytes"},
      {ErrorCode::kTooLarge, "larger than … KiB, so this is not a recipe"},
      {ErrorCode::kTooLarge, "with its bases and overrides, more than …"},
      {ErrorCode::kTooLarge, "more than … layers"},
      {ErrorCode::kTooLarge, "layers are nested more than … deep; …"},
      {ErrorCode::kEncoding, "not UTF-8; save the file as UTF-8"},
      {ErrorCode::kEncoding, "control character U+…"},
      {ErrorCode::kEncoding, "… (U+…) stands here; …"},
      {ErrorCode::kSyntax, "this '…' is never closed"},
      {ErrorCode::kSyntax, "this quote is never closed"},
      {ErrorCode::kSyntax, "a tab in the indentation; …"},
      {ErrorCode::kSyntax, "a second document begins here; …"},
      {ErrorCode::kSyntax, "no anchor …"},
      {ErrorCode::kSyntax, "no mapping can begin here; …"},
      {ErrorCode::kSyntax, "within { } or [ ], a text with …"},
      {ErrorCode::kSyntax, "there is no space after the colon of …"},
      {ErrorCode::kSyntax, "there is nothing before this comma"},
      {ErrorCode::kSyntax, "a key is missing before the colon"},
      {ErrorCode::kSyntax, "a key must be a string, found …"},
      {ErrorCode::kSyntax, "unknown tag …"},
      {ErrorCode::kDuplicateKey, "duplicate key; …"},
      {ErrorCode::kDuplicateKey, "a second <<; …"},
      {ErrorCode::kMerge, "!replace stands before …"},
      {ErrorCode::kMerge, "!remove takes …"},
      {ErrorCode::kMerge, "<< merges …"},
      {ErrorCode::kMerge, "there is no '…' to remove…"},
      {ErrorCode::kMerge, "is a set of evaluation data beside …"},
      {ErrorCode::kReference, "${…}…"},
      {ErrorCode::kReference, "'${' without '}'; …"},
      {ErrorCode::kReference, "refers to itself: …"},
      {ErrorCode::kReference, "the environment variable … is not …"},
      {ErrorCode::kReference, "a '$' comes to stand right before the ${…} of a parameter"},
      {ErrorCode::kReference, "more than … references that lead to each other"},
      {ErrorCode::kReference, "more than … defaults within each other"},
      {ErrorCode::kPlugin, "there is no plugin …"},
      {ErrorCode::kPlugin, "the plugin … cannot …"},
      {ErrorCode::kUnknownKey, "unknown parameter of …"},
      {ErrorCode::kUnknownKey, "unknown key…"},
      {ErrorCode::kUnknownKey, "a group can set only the parameters of its optimizer"},
      {ErrorCode::kUnknownComponent, "unknown … '…'…"},
      {ErrorCode::kUnknownComponent, "expected a list of …; unknown … '…'…"},
      {ErrorCode::kNoType, "… needs a type: {type: NAME, …}…"},
      {ErrorCode::kNameTaken, "the name '…' is taken by …"},
      {ErrorCode::kNameTaken, "there is a layer called …"},
      {ErrorCode::kNameTaken, "a layer or a field of the batch is called '…', too"},
      {ErrorCode::kBlock, "the block … uses itself: …"},
      {ErrorCode::kBlock, "the block … reads … inputs (…), but gets …"},
      {ErrorCode::kMissingKey, "… is missing (…"},
      {ErrorCode::kMissingKey, "the block needs layers…"},
      {ErrorCode::kMissingKey, "the block … needs …"},
      {ErrorCode::kNotAChoice, "'…' is not one of …"},
      {ErrorCode::kNotAChoice, "expected auto, cpu, cuda, or …"},
      {ErrorCode::kNoMatch, "'…' matches no …"},
      {ErrorCode::kNoMatch, "no parameter that an earlier pattern left has a name that matches …"},
      {ErrorCode::kBadPattern, "'…' is not a regular expression…"},
      {ErrorCode::kEmpty, "a list of losses needs at least one"},
      {ErrorCode::kEmpty, "a model needs at least one layer"},
      {ErrorCode::kEmpty, "expected at least one …"},
      {ErrorCode::kEmpty, "needs at least one …"},
      {ErrorCode::kEmpty, "leaves no sample; …"},
      {ErrorCode::kEmpty, "a name may not be empty"},
      {ErrorCode::kWrongType, "'…' is not of type …"},
      {ErrorCode::kWrongType, "expected …, found …"},
      {ErrorCode::kWrongType, "expected {match: …"},
      {ErrorCode::kOutOfRange, "must be …, is …"},
      {ErrorCode::kUnknownName, "no earlier layer and no field of the batch is called …"},
      {ErrorCode::kUnknownName, "no layer and no field of the batch is called …"},
      {ErrorCode::kShared, "no earlier layer is called …"},
      {ErrorCode::kShared, "a shared layer is one module, …"},
      {ErrorCode::kShared, "… is that of …, which this layer shares; …"},
      {ErrorCode::kShared, "the parameters of … are not like those of …"},
      {ErrorCode::kOutputs, "… has … output…, but outputs names …"},
      {ErrorCode::kEvaluationData, "its batches do not fit the model that dataset.train gives: …"},
      {ErrorCode::kEvaluationData, "its batches have no field '…' like those of dataset.train"},
      {ErrorCode::kLayerDoesNotFit, "… does not fit its input …"},
      {ErrorCode::kIndices, "num_embeddings is …, but the indices in …"},
      {ErrorCode::kBatchNorm, "… cannot normalize one value per channel in training, …"},
      {ErrorCode::kNothingToTrain, "…so there is nothing to train…"},
      {ErrorCode::kAdapters, "… cannot be adapted and be one of modules_to_save; …"},
      {ErrorCode::kCannotBeBuilt, "… cannot be built: …"},
      {ErrorCode::kTokens, "…is written once for all data sets, as dataset.…"},
      {ErrorCode::kTokens, "… cannot add tokens to its tokenizer"},
      {ErrorCode::kTokens, "tokens are added to one tokenizer, …"},
      {ErrorCode::kTokens, "no data set of this recipe has a tokenizer"},
      {ErrorCode::kTokens, "the embeddings of the … new tokens of …"},
      {ErrorCode::kSampling, "Windows needs rows that follow each other in time, …"},
      {ErrorCode::kSampling, "cannot order …"},
      {ErrorCode::kMonitor, "there are no evaluations to watch: …"},
      {ErrorCode::kMonitor, "evaluations have no '…"},
      {ErrorCode::kMonitorMode, "whether a smaller or a larger '…"},
      {ErrorCode::kUnreadable, "no such file…"},
      {ErrorCode::kUnreadable, "this is a folder, not a recipe"},
      {ErrorCode::kUnreadable, "cannot read: …"},
      {ErrorCode::kUnreadable, "cannot open: …"},
      {ErrorCode::kMissingKey, "training needs num_epochs or max_steps"},
      {ErrorCode::kUnusable, "the name becomes part of …"},
      {ErrorCode::kUnusable, "a set that is named …"},
      {ErrorCode::kUnusable, "cannot have a control character…"},
      {ErrorCode::kUnusable, "cannot have a '/', because …"},
      {ErrorCode::kUnusable, "cannot be '…', which stands for another folder than …"},
      {ErrorCode::kUnusable, "cannot begin with '-', which …"},
      {ErrorCode::kUnusable, "has a part of … bytes, …"},
      {ErrorCode::kUnknownKey, "Accelerate's files have no such key…"},
      {ErrorCode::kUnknownKey, "DeepSpeed's files have no such key…"},
  };
  return all;
}

bool fits(std::string_view message, std::string_view form) {
  const bool is_open = form.ends_with(kAnything);
  size_t at = 0;
  for (bool is_first = true; !form.empty(); is_first = false) {
    const size_t end = std::min(form.find(kAnything), form.size());
    const std::string_view piece = form.substr(0, end);
    const size_t found = is_first ? (message.starts_with(piece) ? 0 : std::string_view::npos) : message.find(piece, at);
    if (found == std::string_view::npos) return false;
    at = found + piece.size();
    form.remove_prefix(std::min(end + kAnything.size(), form.size()));
  }
  return is_open || at == message.size();
}

/// "Conv2d needs kernel_size (size of the window)": one word, and the name of a parameter.
bool names_missing_parameter(std::string_view message) {
  constexpr std::string_view kNeeds = " needs ";
  const size_t needs = message.find(kNeeds);
  if (needs == std::string_view::npos || message.substr(0, needs).find(' ') != std::string_view::npos) return false;
  const std::string_view rest = message.substr(needs + kNeeds.size());
  const size_t end = rest.find(' ');
  return end == std::string_view::npos || rest.substr(end).starts_with(" (");
}

/// What the place says of a message of no form.
ErrorCode code_of_place(const std::string& path, std::string_view message) {
  const bool is_unfit = message.find(" does not fit ") != std::string_view::npos;
  if (is_unfit && path.starts_with("loss")) return ErrorCode::kLossDoesNotFit;
  if (is_unfit && path.starts_with("metrics")) return ErrorCode::kMetricDoesNotFit;
  if (is_unfit && path.find("init") != std::string::npos) return ErrorCode::kInitializer;
  if (path == "dataset.train" || path == "dataset.eval") return ErrorCode::kData;
  const bool is_of_model = path.starts_with("model");  // not those of a sampler
  if (is_of_model && (path.ends_with(".weights") || path.ends_with(".weights.path"))) return ErrorCode::kWeights;
  if (path.ends_with(']') && path.substr(0, path.rfind('[')).ends_with("transforms")) return ErrorCode::kTransform;
  return ErrorCode::kRule;
}

}  // namespace

ErrorCode code_of(const Problem& problem) {
  const bool is_of_program = !problem.place.file && problem.path.empty();
  const bool is_of_export = problem.message.starts_with("export --format ") ||
                            problem.message.find(" cannot be written as ONNX: ") != std::string::npos;
  if (is_of_program || is_of_export) return ErrorCode::kNone;
  if (problem.place.file && *problem.place.file == "command line" && problem.path.empty()) return ErrorCode::kOverride;
  for (const Form& form : forms()) {
    if (fits(problem.message, form.text)) return form.code;
  }
  if (names_missing_parameter(problem.message)) return ErrorCode::kMissingKey;
  return code_of_place(problem.path, problem.message);
}

std::string code_text(ErrorCode code) {
  if (code == ErrorCode::kNone) return "";
  const std::string digits = std::to_string(static_cast<int>(code));
  return "T" + std::string(4 - digits.size(), '0') + digits;
}

std::string coded_text(const Problem& problem) {
  std::string text = problem.to_string();
  const ErrorCode code = code_of(problem);
  if (code == ErrorCode::kNone) return text;
  return text.insert(std::min(text.find('\n'), text.size()), " [" + code_text(code) + "]");
}

}  // namespace trainrun
