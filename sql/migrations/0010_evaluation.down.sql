-- Takes the comparisons away; `reelabel evaluate` makes them anew from the results.

DROP TABLE reelabel.evaluation;
