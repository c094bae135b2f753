#pragma once

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

/// One value in which two resolved recipes differ.
struct RecipeChange {
  enum class Kind {
    kChanged,
    kAdded,    // an item of a list that is only in the second; `path` counts there
    kRemoved,  // one that is only in the first
  };
  enum class Effect {
    kNone,     // where the run lies, what it says and keeps, how fast it is
    kLength,   // how long it goes on: the run goes on, and what is scheduled by its length is stretched
    kNumbers,  // it is another run
  };
  std::string path;   // "optimizer.lr"
  Value before, now;  // a default where nothing is written; null where there is none
  Kind kind = Kind::kChanged;
  Effect effect = Effect::kNumbers;

  bool breaks_resume() const { return effect == Effect::kNumbers; }
  /// "optimizer.lr was 0.1 and is 0.2". Texts are not quoted: they may be secrets.
  std::string to_string() const;
};

/// How the items of two lists of components, such as layers, are told to be the same ones.
enum class Lists {
  kByPosition,
  kAligned,  // by their names and types, so that one that came or went does not change all those after it
};

/// Compares what recipes say, not how: a default written or left out, `ReLU` or {type: ReLU}, 1e-3 or 0.001, two paths
/// of one file are the same. `evaluation_counts`: when evaluations come changes the rates, as those of
/// ReduceLROnPlateau. Whether any change breaks a resume does not depend on `lists`.
std::vector<RecipeChange> changes_between(const Value& before, const Value& now, bool evaluation_counts, Lists lists);

/// How two resolved recipes differ, each difference by its key, as RecipeChange says it.
struct RecipeDifference {
  std::vector<std::string> numbers;  // what changes the numbers of a run: it is another one
  std::vector<std::string> others;   // where it lies, how long it goes on, what it says and keeps: the run goes on
};

/// The same, by position and in words.
RecipeDifference compare_recipes(const Value& before, const Value& now, bool evaluation_counts);

}  // namespace trainrun
