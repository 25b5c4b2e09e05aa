//! Regions, policies, budgets and limits: what is kept and what is computed again, what is said of it, and that no bit changes.

mod barriers;
mod budget_policy;
mod custom_remat;
mod limits;
mod plans;
mod policy_bits;
mod profiles;
mod reads;
mod regions;
mod report;
mod strengths;
mod training_memory;
