#pragma once

#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// The kinds of mistakes that a recipe can have. Users look them up by number (`trainrun explain T0101`), and other
/// programs may rely on them: a number is never changed and never given to another kind. The hundreds say what is
/// wrong: 1 values and keys, 2 the text of the file, 3 the model, 4 the data, 5 what goes on during the job.
/// error_pages.h says what each means.
enum class ErrorCode : int {
  kNone = 0,  // not a mistake of a recipe

  kUnknownKey = 101,
  kMissingKey = 102,
  kWrongType = 103,
  kOutOfRange = 104,
  kNotAChoice = 105,
  kEmpty = 106,
  kUnknownComponent = 107,  // a plugin may have it
  kNoType = 108,
  kRule = 109,
  kUnusable = 110,
  kBadPattern = 111,
  kNoMatch = 112,

  kSyntax = 201,
  kDuplicateKey = 202,
  kEncoding = 203,
  kTooLarge = 204,
  kNotARecipe = 205,
  kReference = 206,
  kBase = 207,
  kMerge = 208,
  kOverride = 209,
  kPlugin = 210,
  kUnreadable = 211,

  kLayerDoesNotFit = 301,
  kUnknownName = 302,
  kNameTaken = 303,
  kBlock = 304,
  kOutputs = 305,
  kShared = 306,
  kNothingToTrain = 307,
  kLossDoesNotFit = 308,
  kMetricDoesNotFit = 309,
  kIndices = 310,
  kWeights = 311,
  kAdapters = 312,
  kInitializer = 313,
  kCannotBeBuilt = 314,
  kBatchNorm = 315,

  kData = 401,
  kTransform = 402,
  kEvaluationData = 403,
  kTokens = 404,
  kSampling = 405,

  kMonitor = 501,
  kMonitorMode = 502,
};

/// The kind of a mistake, by how its message is worded and by its place: tests/recipes/invalid has the code of each
/// message, so that none gets another code by being reworded.
ErrorCode code_of(const Problem& problem);

/// "T0101"; "" of kNone.
std::string code_text(ErrorCode code);

/// The problem's text with its code, by which it can be looked up: "…; did you mean kernel_size? [T0101]".
std::string coded_text(const Problem& problem);

}  // namespace trainrun
