#pragma once

namespace trainrun {

struct DataContract;
struct DatasetSection;

/// Has the data of a recipe that was trained give the fields that the training data had, as `contract` says, so that a model can be
/// built, and predict, where their files are no longer there: the training data always, until they are opened; the
/// evaluation data where they cannot say themselves.
void use_known_fields(DatasetSection& section, const DataContract& contract);

}  // namespace trainrun
