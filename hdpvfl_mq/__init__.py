"""HDP-VFL: one generalized linear model from columns that several companies keep apart."""
